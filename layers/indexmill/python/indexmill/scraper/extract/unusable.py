"""Pages with status 200 and without content: logins, "not found" pages, consent walls, shells for scripts.

Only short pages are looked at, so that ordinary ones cost nothing and a page about logins or 404s is kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from indexmill.contracts.errors import ErrorCode
from indexmill.scraper.extract.html import defused

SHORT: Final = 1_200
"""Characters of Markdown; longer pages are what they are."""
_LITTLE: Final = 300
"""Characters of Markdown; of pages with more, only the title and the headings count."""
_SOME: Final = 600
"""Characters of Markdown; a page with more that begins with "not found" is about it."""
_SHELL: Final = 250
_LOOKED_AT: Final = 2_000
"""Characters of a heading, a form or a notice."""
_LINE: Final = 200
"""Characters of a title or heading that are compared."""
_PLACES: Final = 20
_OWN: Final = 80
"""Characters of a landmark that has a text of its own."""
_PASSWORD: Final = "input[type=password i]"
_ACCOUNT: Final = (
    "input:is([autocomplete*=username i], [name*=user i], [name*=login i], [name*=email i], "
    "[name*=account i], "
    "[name=identifier i], [name=loginfmt i], [name=log i], [id*=user i], [id*=login i], [type=email i])"
    ":not([type=hidden i], [type=submit i], [type=checkbox i], [type=search i])"
)
_LABELS: Final = "button, label, legend, a, h2, h3, [role=button]"
_SUBMITS: Final = "input[type=submit i][value], input[type=button i][value], button[value], [aria-label]"
_ASIDE_TAGS: Final = frozenset(("header", "nav", "dialog", "aside", "footer", "template", "noscript", "menu"))
_ASIDE_ROLES: Final = frozenset(
    ("banner", "navigation", "dialog", "alertdialog", "complementary", "contentinfo", "menu", "search")
)
_ASIDE_CLASSES: Final = re.compile(
    r"(?:^|[\s_-])(modal|popup|pop-up|popover|dropdown|offcanvas|off-canvas|drawer|overlay|lightbox|collapse"
    r"|hidden|hide|d-none|visually-hidden|sr-only|sidebar|topbar|top-bar|navbar|header|footer|mfp-hide)"
    r"(?:$|[\s_-])",
    re.IGNORECASE,
)
_UNSEEN_STYLE: Final = re.compile(r"display:\s*none|visibility:\s*hidden", re.IGNORECASE)
_LOGIN_WORDS: Final = (
    r"log[ -]?[io]n|sign[ -]?[io]n|log[ -]on|anmelden|anmeldung|einloggen|login|connexion|se connecter"
    r"|connectez-vous"
    r"|identifiez-vous|iniciar sesi\u00f3n|inicia sesi\u00f3n|inicie sesi\u00f3n|acceder|acceso|accedi"
    r"|accesso"
    r"|inloggen|aanmelden|logga in|logg inn|log ind|kirjaudu(?: sis\u00e4\u00e4n)?|entrar|iniciar sess\u00e3o"
    r"|fazer login|fa\u00e7a login|zaloguj(?: si\u0119)?|logowanie|p\u0159ihl\u00e1sit(?: se)?"
    r"|p\u0159ihl\u00e1\u0161en\u00ed"
    r"|bejelentkez\u00e9s|oturum a\u00e7|giri\u015f(?: yap)?|\u0432\u0445\u043e\u0434"
    r"|\u0432\u043e\u0439\u0442\u0438"
    r"|\u0432\u043e\u0439\u0434\u0438\u0442\u0435"
    r"|\u0430\u0432\u0442\u043e\u0440\u0438\u0437\u0430\u0446\u0438\u044f"
    r"|\u30ed\u30b0\u30a4\u30f3|\u30b5\u30a4\u30f3\u30a4\u30f3|\u767b\u5f55|\u767b\u5165|\ub85c\uadf8\uc778"
)
_LOGIN: Final = re.compile(
    rf"(?<!\w)(?:{_LOGIN_WORDS})(?!\w)|\u30ed\u30b0\u30a4\u30f3|\u767b[\u5f55\u5165]", re.IGNORECASE
)
_LOGIN_HEADING: Final = re.compile(
    rf"(?:please |bitte |veuillez |you (?:must|need to) |(?:jetzt|bei \S+) )?(?:\S+ )?(?:{_LOGIN_WORDS})"
    r"(?: required| page| form| erforderlich| requise?)?"
    r"(?: (?:to|in|into|at|with|bei|zum|zu|\u00e0|a|en|na|op|p\u00e5|do|\u0432) .{1,60})?[.!]?",
    re.IGNORECASE,
)
_MUST_LOG_IN: Final = re.compile(
    r"\b(you (must|need to|have to)( first)? (be )?(log(ged)?|sign(ed)?)[ -]?in|(please|you('"
    r"|\u2019)re not) (log|sign)(ged|ed)?[ -]?in"
    r"|(log[ -]?in|sign[ -]?in|authentication) (is )?required|(log|sign) in (or (register|join"
    r"|sign up|create an account) )?to \w+"
    r"|session (has )?(expired|timed out)|members only|bitte (melden sie sich|anmelden"
    r"|einloggen)|veuillez vous (connecter|identifier)"
    r"|(inicia|inicie|debes iniciar) sesi\u00f3n|fa\u00e7a (o )?login|effettua (il login"
    r"|l'accesso)|accedi (per|a)\b|zaloguj si\u0119"
    r"|log (je|u) in\b|je moet (ingelogd|inloggen)|du m\u00e5ste logga in)"
    r"|\u0432\u043e\u0439\u0434\u0438\u0442\u0435|\u30ed\u30b0\u30a4\u30f3\u3057\u3066|\u8bf7(?:\u5148)?\u767b\u5f55",
    re.IGNORECASE,
)
_ENTRY: Final = re.compile(
    rf"^\s*(?:(?:{_LOGIN_WORDS})(?: (?:with|via|using|mit|avec|con|met|med|com|z|to) .{{1,40}})?"
    r"|(?:continue|weiter|continuer|continuar|continua|doorgaan) (?:with|mit|avec|con|com|met)"
    r" .{1,40}|sso|single sign-on)\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_PROTECTED: Final = re.compile(
    r"password[- ]protected|enter (the|your|a|store)( \w+)? password|passwortgesch\u00fctzt"
    r"|prot\u00e9g\u00e9e? par (un )?mot de passe"
    r"|protegid[oa] (con|por) (contrase\u00f1a|senha)|protett[oa] da password|beveiligd met een wachtwoord",
    re.IGNORECASE,
)
_FEW_FIELDS: Final = 4
_SEPARATORS: Final = re.compile(r"\s+[-\u2013\u2014|\u00b7\u2022\u00bb\u00ab:/]+\s+|\s*[|\u00bb\u00ab]\s*")
_THING: Final = (
    r"(?:web ?)?(?:page|site|file|document|article|item|product|post|entry|resource|url|content"
    r"|topic|thread|listing|location)"
)
_SORRY: Final = (
    r"(?:(?:oh no|oops|whoops|uh[- ]oh|sorry|we(?:'|\u2019)?re sorry|we are sorry|hm+|ups|hoppla|ooops"
    r"|sorry about that)"
    r"[\s,.!:;\u2013\u2014-]*(?:but )?)*"
)
_MISSING: Final = (
    rf"(?:(?:the|this|that|your|requested|page|we|you|were|are|have|been|looking|for|tried|to|open|reach"
    rf"|wanted|an?) )*{_THING}"
    r"(?:,? (?:that |which )?you (?:requested|are looking for|were looking for|wanted|tried to \w+"
    r"|asked for|entered))?"
    r" (?:(?:was |is |were |has |could |can |does |has been |may have been |you requested )*"
    r"(?:not (?:be )?(?:found|exist|available)|no longer (?:exists?|available|here)|removed|deleted|gone"
    r"|missing|unavailable)"
    r"|(?:could|ca|does|is|was|do|wo)n['\u2019]t (?:be )?(?:found|exist|available|here))"
    rf"|not found|nothing (?:was )?found(?: here)?|(?:we )?(?:(?:could|can)(?:not|n?['\u2019]t| not)"
    rf"|were unable to|unable to) find "
    rf"(?:the |that |this |your |a |what )?(?:requested )?(?:{_THING}|you(?:'|\u2019)re looking for"
    rf"|you are looking for)(?: you [\w ]{1, 40})?"
    r"|(?:die |diese |angeforderte |gesuchte |gew\u00fcnschte )*(?:seite|datei|inhalt|artikel) (?:wurde "
    r"|konnte |existiert |ist )?"
    r"(?:leider )?(?:nicht (?:gefunden(?: werden)?|vorhanden|verf\u00fcgbar|mehr verf\u00fcgbar)"
    r"|nicht(?: mehr)?)"
    r"|(?:la |cette )?page (?:demand\u00e9e |que vous cherchez |recherch\u00e9e )?(?:est "
    r"|n['\u2019]a pas \u00e9t\u00e9 |n['\u2019]existe )?"
    r"(?:non trouv\u00e9e|introuvable|trouv\u00e9e|pas|plus)"
    r"|(?:la )?p\u00e1gina (?:solicitada )?(?:no (?:encontrada|existe|disponible|se ha encontrado"
    r"|se encuentra)"
    r"|n\u00e3o (?:foi )?encontrada|n\u00e3o existe)|no se (?:ha encontrado|encuentra"
    r"|encontr\u00f3) la p\u00e1gina"
    r"|(?:la )?pagina (?:richiesta )?non (?:trovata|\u00e8 stata trovata|esiste|disponibile)"
    r"|(?:de )?pagina (?:is )?niet gevonden|(?:sidan|siden) (?:kunde inte hittas|hittades inte"
    r"|finns inte|blev ikke fundet|ble ikke funnet)"
    r"|(?:nie znaleziono strony|strona nie (?:zosta\u0142a znaleziona|istnieje))"
    r"|str\u00e1nka (?:nebyla )?nenalezena"
    r"|\u0441\u0442\u0440\u0430\u043d\u0438\u0446\u0430 \u043d\u0435"
    r" \u043d\u0430\u0439\u0434\u0435\u043d\u0430"
    r"|\u30da\u30fc\u30b8\u304c(?:\u898b\u3064\u304b\u308a\u307e\u305b\u3093(?:\u3067\u3057\u305f)?"
    r"|\u5b58\u5728\u3057\u307e\u305b\u3093)"
    r"|(?:\u9875\u9762|\u9801\u9762)(?:\u4e0d\u5b58\u5728|\u672a\u627e\u5230)"
)
_STRUCTURED: Final = re.compile(r"`|^(?:\||\d+\. )", re.MULTILINE)
"""Code, tables and steps: notices have none, texts about such pages do."""
_NEUTRAL: Final = re.compile(rf"{_SORRY}[\s.!?\u2026]*", re.IGNORECASE)
_CODE: Final = (
    r"(?:http )?(?:(?:error|fehler|erreur|fel|\u043e\u0448\u0438\u0431\u043a\u0430)(?: code)?:? ?)?"
    r"(?:404|410)(?: (?:gone|error|fehler|not found|page))?"
)
_NOT_FOUND: Final = re.compile(
    rf"{_SORRY}(?:{_CODE}(?:[\s:.,!\u2013\u2014-]+{_SORRY}(?:{_MISSING}))?|{_MISSING})(?:[\s:.,!\u2013\u2014(-]+{_CODE}\)?)?[\s.!?\u2026:(]*",
    re.IGNORECASE,
)
_SERVER_ERROR: Final = re.compile(
    r"(?:http )?(?:error )?(?:5\d\d[\s:\u2013-]*)?(?:internal server error|bad gateway"
    r"|service (?:temporarily )?unavailable"
    r"|gateway time-?out|server error|application error)|(?:http )?(?:error )?50[0234](?: error)?"
    r"|error establishing a database connection|site en maintenance|an unexpected error occurred",
    re.IGNORECASE,
)
_WANTS_SCRIPTS: Final = re.compile(
    r"\b(enable|requires?|need|activate|turn on|without)\b[^.]{0,40}javascript", re.IGNORECASE
)
_CHALLENGE: Final = re.compile(
    r"\b(verify (that )?you('|\u2019)?( a)?re (a )?(human|not a (ro)?bot)|verifying you are human"
    r"|checking (your|if the site connection is secure|the site connection) ?(browser)?"
    r"|are you a (ro)?bot|just a moment\.\.\."
    r"|press (&|and) hold to confirm you are|robot check|pardon our interruption|one more step"
    r"|attention required! \| cloudflare|you have been blocked|incapsula incident id|ddos protection by"
    r"|access denied.{0,400}(reference #|error code 1020|ray id)|human verification"
    r"|complete the (security check|captcha)|enter the characters you see below)",
    re.IGNORECASE | re.DOTALL,
)
_LOADING: Final = re.compile(r"\W*(loading|please wait|wird geladen|chargement)\W*", re.IGNORECASE)
_CONSENT: Final = re.compile(
    r"\b(before you continue|(we value|we respect|about) your privacy|your privacy|cookies?"
    r"|privatsph\u00e4re|datenschutz-?einstellungen|vie priv\u00e9e)\b",
    re.IGNORECASE,
)
_AGREE: Final = re.compile(
    r"\s*((i )?(accept|agree|consent|allow)|(alle )?(akzeptieren|zustimmen)|(tout )?accepter|aceptar"
    r"|accetta)\b",
    re.IGNORECASE,
)
_MOUNTS: Final = "#root, #app, #__next, #__nuxt, #___gatsby, app-root, [ng-app], [data-reactroot], #svelte"


def reason(html: str, title: str | None, markdown: str, accept: Collection[str] = ()) -> ErrorCode | None:
    """Return why the page has nothing to index; None for a page like any other.

    `title` and `markdown` are what was read from `html`; the Markdown may be "". The codes `accept` are no
    reason.
    """
    if len(markdown) > SHORT:
        return None
    tree = LexborHTMLParser(defused(html))
    headings = [*_headings(title), *_headings_of(tree)]
    if ErrorCode.LOGIN_REQUIRED not in accept and _is_login(tree, headings, markdown):
        return ErrorCode.LOGIN_REQUIRED
    if ErrorCode.SOFT_404 not in accept and _is_not_found(tree, title, markdown):
        return ErrorCode.SOFT_404
    return _blocked(tree, f"{title or ''}\n{_text(tree, 'h1')}", headings, markdown)


def _blocked(tree: LexborHTMLParser, head: str, headings: list[str], markdown: str) -> ErrorCode | None:
    """Return why the page is not shown: scripts, a check for humans, a failed server, consent."""
    short = len(markdown) <= _SHELL
    if len(markdown) <= _SOME and _CHALLENGE.search(f"{head}\n{markdown}"):
        return ErrorCode.NEEDS_JAVASCRIPT
    if short and tree.css_first("script") is not None and _is_shell(tree, f"{head}\n{markdown}"):
        return ErrorCode.NEEDS_JAVASCRIPT
    if short and any(_SERVER_ERROR.fullmatch(each.strip(" .!")) for each in headings):
        return ErrorCode.EMPTY_CONTENT
    if short and _CONSENT.search(f"{head}\n{_text(tree, 'h2')}") and _agrees(tree):
        return ErrorCode.EMPTY_CONTENT
    return None


def _is_login(tree: LexborHTMLParser, headings: list[str], markdown: str) -> bool:
    """Return whether the page asks for an account where its text would be."""
    said = any(_LOGIN_HEADING.fullmatch(each) or _MUST_LOG_IN.search(each) for each in headings)
    if len(markdown) > _LITTLE and not said:
        return False
    fields = tree.css(_PASSWORD)[:_PLACES]
    if not fields and (said or len(markdown) <= _SHELL):
        fields = tree.css(_ACCOUNT)[:_PLACES]
    texts = [each for each in tree.css("main, [role=main], article") if len(_own_text(each)) > _OWN]
    for field in fields:
        form = _form(field, alone=said or len(markdown) <= _OWN)
        if form is None or (not said and texts and not any(_is_within(field, each) for each in texts)):
            continue
        seen = "\n".join((*headings, _labels(form)))
        if (
            said
            or _LOGIN.search(seen)
            or _PROTECTED.search(f"{seen}\n{form.text()[:_LOOKED_AT]}\n{markdown}")
        ):
            return True
        if len(markdown) < _OWN and len(form.css("input:not([type=hidden i])")) <= _FEW_FIELDS:
            return True
    return said and len(markdown) <= _LITTLE and _ENTRY.search(_labels(tree)) is not None


def _form(field: LexborNode, *, alone: bool) -> LexborNode | None:
    """Return the form of a field, or what holds it; None when it is not seen or beside the text.

    `alone`: the page has no other text, so that names of classes say nothing.
    """
    form = above = field.parent
    while above is not None and above.tag not in ("body", "html", None):
        has = above.attributes
        if above.tag == "form":
            form = above
        if (
            above.tag in _ASIDE_TAGS
            or (has.get("role") or "") in _ASIDE_ROLES
            or "hidden" in has
            or has.get("aria-hidden") == "true"
            or _UNSEEN_STYLE.search(has.get("style") or "")
            or (not alone and _ASIDE_CLASSES.search(has.get("class") or ""))
        ):
            return None
        above = above.parent
    return form


def _is_within(node: LexborNode, part: LexborNode) -> bool:
    above = node.parent
    while above is not None:
        if above.mem_id == part.mem_id:
            return True
        above = above.parent
    return False


def _own_text(part: LexborNode) -> str:
    """Return the text of an element that is not of a form in it."""
    of_forms = sum(len(form.text(strip=True)) for form in part.css("form"))
    text = part.text(strip=True)
    return text[: max(0, len(text) - of_forms)]


def _labels(form: LexborNode | LexborHTMLParser) -> str:
    texts = [each.text(separator=" ")[:_LOOKED_AT] for each in form.css(_LABELS)[:_PLACES]]
    for each in form.css(_SUBMITS)[:_PLACES]:
        texts += [each.attributes.get("value") or "", each.attributes.get("aria-label") or ""]
    return "\n".join(texts)


def _is_not_found(tree: LexborHTMLParser, title: str | None, markdown: str) -> bool:
    """Return whether title or heading say no more than that there is no such page."""
    if len(markdown) > _SOME or _STRUCTURED.search(markdown) is not None:
        return False
    parts, nodes = _headings(title), [each for each in _headings_of(tree) if not _NEUTRAL.fullmatch(each)]
    by_title = any(_NOT_FOUND.fullmatch(each) for each in parts)
    by_heading = any(_NOT_FOUND.fullmatch(each) for each in nodes)
    if len(markdown) > _LITTLE:
        return by_title and by_heading
    return by_title or by_heading


def _headings(title: str | None) -> list[str]:
    """Return the parts of a title; sites put their name before or after it."""
    whole = " ".join((title or "").split())[:_LINE]
    return [whole, *(part for part in _SEPARATORS.split(whole) if part)] if whole else []


def _headings_of(tree: LexborHTMLParser) -> list[str]:
    """Return the first heading; of the second level only where it is the only one."""
    nodes = tree.css("h1")[:1] or tree.css("h2")
    return [" ".join(nodes[0].text(separator=" ")[:_LINE].split())] if len(nodes) == 1 else []


def _is_shell(tree: LexborHTMLParser, text: str) -> bool:
    mount = tree.css_first(_MOUNTS)
    inside = mount.text(strip=True) if mount is not None else None
    if inside is not None and (not inside or _LOADING.fullmatch(inside)):
        return True
    return _WANTS_SCRIPTS.search(f"{text}\n{_text(tree, 'noscript')}") is not None


def _agrees(tree: LexborHTMLParser) -> bool:
    return any(
        _AGREE.match(each.text()[:_LOOKED_AT]) for each in tree.css("button, a[role=button]")[:_PLACES]
    )


def _text(tree: LexborHTMLParser, selector: str) -> str:
    return "\n".join(each.text(separator=" ")[:_LOOKED_AT] for each in tree.css(selector)[:_PLACES])
