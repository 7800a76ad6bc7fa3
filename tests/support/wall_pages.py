"""Walls made after real products, and short ordinary pages that look like one, in eight languages."""

from __future__ import annotations

from typing import Final

_P: Final = '<input type="password" name="p">'
_PART: Final = "It is ground between two stones of sandstone, sold in bags of five kilos, and kept dry."
_MODAL: Final = (
    '<div class="modal" style="display:none"><form><h2>Sign in</h2><input name="u">'
    f"{_P}<button>Sign in</button></form></div>"
)
_HEADER: Final = (
    '<header><a href="/">Home</a><form><label>Log in <input name="username"></label>'
    f'{_P}<input type="submit" value="Log in"></form></header>'
)
WALLS: Final = {
    "WordPress": (
        "login_required",
        '<title>Log In \u2039 Mill \u2014 WordPress</title><div id="login"><h1>WordPress</h1><form '
        f'id="loginform"><p><label>Username or Email Address</label><input name="log"></p><p>{_P}</p>'
        '<p><input type="submit" value="Log In"></p></form><p><a href="#">Lost your password?</a></p></div>',
    ),
    "GitLab": (
        "login_required",
        '<title>Sign in \u00b7 GitLab</title><main id="content-body"><h1>GitLab Community Edition</h1><form>'
        f"<label>Username or primary email</label><input name='user[login]'>{_P}<button>Sign in</button>"
        "</form><p>By signing in you accept the Terms of Use.</p></main>",
    ),
    "Keycloak": (
        "login_required",
        '<title>Sign in to mill</title><header id="kc-header">MILL</header><h1 id="kc-page-title">Sign in to '
        f"your account</h1><form><input name='username'>{_P}<input type=submit value='Sign In'></form>",
    ),
    "Discourse, members only": (
        "login_required",
        f"<title>Mill forum</title><main><h1>Welcome to Mill forum!</h1><form><input name=l>{_P}"
        "<button>Log In</button></form><p>This forum is for members.</p></main>",
    ),
    "MediaWiki": (
        "login_required",
        f"<title>Anmelden \u2013 M\u00fchlenwiki</title><h1>Anmelden</h1><form><input name=wpName>{_P}"
        "<button>Anmelden</button></form><p>Bitte Cookies zulassen.</p>",
    ),
    "Microsoft Entra": (
        "login_required",
        "<title>Sign in to your account</title><form><h2>Sign in</h2><input name=loginfmt type=email>"
        "<input type=submit value=Next></form><p>No account? Create one!</p>",
    ),
    "Moodle, French": (
        "login_required",
        f"<title>Connexion au site | Moodle</title><main><h2>Connexion</h2><form><input name=username>{_P}"
        "<button>Se connecter</button></form><p>Des cookies doivent \u00eatre permis.</p></main>",
    ),
    "phpMyAdmin, Spanish": (
        "login_required",
        f"<title>phpMyAdmin</title><h1>Bienvenido a phpMyAdmin</h1><form><legend>Iniciar sesi\u00f3n</legend>"
        f"<input name=pma>{_P}<input type=submit value=Continuar></form>",
    ),
    "Nextcloud, Dutch": (
        "login_required",
        f"<title>Inloggen \u2013 Nextcloud</title><main><form><h2>Inloggen bij Nextcloud</h2>"
        f"<input name=user>"
        f"{_P}<button>Inloggen</button></form></main>",
    ),
    "Bitrix, Russian": (
        "login_required",
        f"<title>\u0410\u0432\u0442\u043e\u0440\u0438\u0437\u0430\u0446\u0438\u044f</title>"
        f"<form><input name=l>"
        f"{_P}<input type=submit value='\u0412\u043e\u0439\u0442\u0438'></form>",
    ),
    "Redmine, Japanese": (
        "login_required",
        f"<title>Redmine</title><h1>Redmine</h1><form><label>\u30d1\u30b9\u30ef\u30fc\u30c9</label>{_P}"
        "<input type=submit value='\u30ed\u30b0\u30a4\u30f3'></form>",
    ),
    "WordPress, Italian": (
        "soft_404",
        "<title>Pagina non trovata - Il mulino</title><h1>Pagina non trovata</h1><p>Prova a cercare.</p>",
    ),
    "nginx": ("soft_404", "<title>404 Not Found</title><center><h1>404 Not Found</h1></center><hr>nginx"),
    "Apache": (
        "soft_404",
        "<title>404 Not Found</title><h1>Not Found</h1>"
        "<p>The requested URL was not found on this server.</p>",
    ),
    "GitHub Pages": (
        "soft_404",
        "<title>Page not found &middot; GitHub Pages</title><h1>404</h1><p>"
        "<strong>File not found</strong></p>"
        "<p>The site configured at this address does not contain the requested file.</p>",
    ),
    "Shopify": (
        "soft_404",
        "<title>404 Not Found \u2013 Mill shop</title><main><h1>Page not found</h1><p>The page you requested "
        "does not exist.</p><a href='/'>Continue shopping</a></main>",
    ),
    "Drupal, Spanish": (
        "soft_404",
        "<title>P\u00e1gina no encontrada | Molino</title><h1>P\u00e1gina no encontrada</h1>"
        "<p>No est\u00e1.</p>",
    ),
    "TYPO3, German": (
        "soft_404",
        "<title>Fehler 404: Seite nicht gefunden</title><h1>Die gesuchte Seite wurde nicht gefunden</h1>",
    ),
    "Joomla, Dutch": ("soft_404", "<title>Fout: 404</title><h1>Pagina niet gevonden.</h1><p>Helaas.</p>"),
    "a Russian shop": (
        "soft_404",
        "<title>404</title><h1>\u0421\u0442\u0440\u0430\u043d\u0438\u0446\u0430 \u043d\u0435 "
        "\u043d\u0430\u0439\u0434\u0435\u043d\u0430</h1>",
    ),
    "Cloudflare, a challenge": (
        "needs_javascript",
        "<title>Just a moment...</title><h2>Checking if the site connection is secure</h2><p>mill.example "
        "needs to review the security of your connection before proceeding.</p><p>Ray ID: 7a</p>",
    ),
    "Cloudflare, a block": (
        "needs_javascript",
        "<title>Attention Required! | Cloudflare</title><h1>Sorry, you have been blocked</h1>"
        "<p>You are unable "
        "to access mill.example</p><p>Cloudflare Ray ID: 7a</p>",
    ),
    "Imperva": (
        "needs_javascript",
        "<title>Pardon Our Interruption</title><h1>Pardon Our Interruption...</h1><p>As you were browsing "
        "something about your browser made us think you were a bot.</p>",
    ),
    "PHP, an error": (
        "empty_content",
        "<title>500 Internal Server Error</title><h1>Internal Server Error</h1><p>Try again later.</p>",
    ),
}
"""Error code and markup, by product."""
ORDINARY: Final = {
    "a shop's product": (
        f"<title>Copper kettle</title><h1>Copper kettle, 2 litres</h1><p>{_PART * 9}</p>{_MODAL}"
    ),
    "a short product": f"<title>Rye flour</title><h1>Rye flour</h1><p>{_PART}</p><p>4.20 \u20ac</p>{_MODAL}",
    "a forum thread": f"<title>Dull stones</title>{_HEADER}<h1>Dull stones</h1><p>{_PART}</p><p>{_PART}</p>",
    "a forum's sidebar": (
        f"<title>Rye</title><aside><form>{_P}<button>Log in</button></form></aside><p>{_PART}</p>"
    ),
    "beside main": (
        f"<title>Mill</title><main><h1>Rye</h1><p>{_PART}</p></main><form>{_P}<button>Log in</button></form>"
    ),
    "a dropdown": (
        f"<title>Mill</title><div class='dropdown-menu'><form>{_P}<button>Login</button></form></div>{_PART}"
    ),
    "a dialog": f"<title>Mill</title><dialog><form>{_P}<button>Login</button></form></dialog><p>{_PART}</p>",
    "Peugeot 404": f"<title>Peugeot 404</title><h1>Peugeot 404</h1><p>A car of 1960. {_PART}</p>",
    "Bus 404": "<title>Bus 404 timetable</title><h1>Bus 404 timetable</h1><p>Mill 9:04, Quay 9:20.</p>",
    "Area code 404": "<title>Area code 404</title><h1>Area code 404</h1><p>Atlanta, Georgia.</p>",
    "room 404": "<title>Room 404 - Hotel Mill</title><h1>Room 404</h1><p>Two beds, a view of the quay.</p>",
    "legal": f"<title>This document is not legal advice: harbour fees explained</title><p>{_PART}</p>",
    "lost property": f"<title>Lost property: item not collected within 30 days</title><p>{_PART}</p>",
    "a novel": f"<title>Page Not Found: a novel</title><h1>Page Not Found: a novel</h1><p>{_PART}</p>",
    "an article": f"<title>404 Not Found - HTTP</title><h1>404 Not Found</h1><p>{_PART * 8}</p>",
    "ISO 404": "<title>ISO/TR 404</title><h1>Steel: general technical delivery</h1><p>Withdrawn.</p>",
    "German": f"<title>Nicht gefunden? Fundb\u00fcro</title><h1>Das Fundb\u00fcro hilft</h1><p>{_PART}</p>",
    "French": f"<title>La page du moulin</title><h1>La page n'est pas une feuille</h1><p>{_PART}</p>",
    "Spanish": (
        f"<title>C\u00f3mo iniciar sesi\u00f3n</title><h1>C\u00f3mo iniciar sesi\u00f3n</h1><p>{_PART}</p>"
    ),
    "Italian": f"<title>Acceso al molino</title><h1>Acceso al molino</h1><p>Aperto dalle 9. {_PART}</p>",
    "Dutch": f"<title>Inloggen uitgelegd</title><h1>Inloggen uitgelegd</h1><p>{_PART}</p>",
    "Russian": (
        "<title>\u0412\u0445\u043e\u0434 \u0432 \u043f\u043e\u0440\u0442</title>"
        "<h1>\u0412\u0445\u043e\u0434 \u0432 \u043f\u043e\u0440\u0442</h1><p>\u0421 \u0434\u0435"
        "\u0432\u044f\u0442\u0438 \u0434\u043e \u043f\u044f\u0442\u0438.</p>"
    ),
    "Japanese": (
        "<title>\u6e2f\u306e\u6599\u91d1</title><h1>\u6e2f\u306e\u6599\u91d1</h1>"
        "<p>\u8239\u306f\u4e5d\u6642\u304b\u3089\u3067\u3059\u3002</p>"
    ),
    "500 grams": f"<title>Rye, 500 g</title><h1>Rye, 500 g</h1><p>{_PART}</p>",
}
"""Markup of pages that are read."""
