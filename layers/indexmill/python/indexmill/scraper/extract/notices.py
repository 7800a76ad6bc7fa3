"""Notices in place of a page: log-ins and missing pages in some twenty languages, checks for humans."""

from __future__ import annotations

import re
from typing import Final

from selectolax.lexbor import LexborHTMLParser

from indexmill.contracts.errors import ErrorCode

LINE: Final = 200
"""Characters of a title, a heading or a sentence that are compared."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LOGIN_WORDS: Final = (
    r"log[ -]?[io]n|sign[ -]?[io]n|log[ -]on|anmelden|anmeldung|einloggen|login|connexion|se connecter"
    r"|connectez-vous|identifiez-vous|iniciar sesión|inicia sesión|inicie sesión|acceder|acceso|accedi"
    r"|accesso|inloggen|aanmelden|logga in|logg inn|log ind|kirjaudu(?: sisään)?|entrar|iniciar sessão"
    r"|fazer login|faça login|zaloguj(?: się)?|logowanie|přihlásit(?: se)?|přihlášení|bejelentkezés"
    r"|oturum aç|giriş(?: yap)?|вход|войти|войдите|авторизация|ログイン|サインイン|登录|登入|로그인"
)
LOGIN: Final = re.compile(rf"(?<!\w)(?:{_LOGIN_WORDS})(?!\w)|ログイン|登[录入]", re.IGNORECASE)
"""A word for logging in."""
LOGIN_HEADING: Final = re.compile(
    rf"(?:please |bitte |veuillez |you (?:must|need to) |(?:jetzt|bei \S+) )?(?:\S+ )?(?:{_LOGIN_WORDS})"
    r"(?: required| page| form| erforderlich| requise?)?"
    r"(?: (?:to|in|into|at|with|bei|zum|zu|à|a|al|alla|ao|en|na|op|på|do|в) .{1,60})?[.!]?"
    r"|(?:for )?members only(?: area)?",
    re.IGNORECASE,
)
"""A whole title or heading of a log-in."""
MUST_LOG_IN: Final = re.compile(
    r"\b(you (must|need to|have to)( first)? (be )?(log(ged)?|sign(ed)?)[ -]?in|(please|you('|’)re not) "
    r"(log|sign)(ged|ed)?[ -]?in|(log[ -]?in|sign[ -]?in|authentication) (is )?required|(log|sign) in "
    r"(or (register|join|sign up|create an account) )?to \w+|session (has )?(expired|timed out)"
    r"|bitte (melden sie sich|anmelden|einloggen)|veuillez vous (connecter|identifier)"
    r"|(inicia|inicie|debes iniciar) sesión|faça (o )?login|effettua (il login|l'accesso)|accedi (per|a)\b"
    r"|zaloguj się|log (je|u) in\b|je moet (ingelogd|inloggen)|du måste logga in)"
    r"|войдите|ログインして|请(?:先)?登录",
    re.IGNORECASE,
)
"""A request to log in, in a heading or a sentence."""
ENTRY: Final = re.compile(
    rf"^\s*(?:(?:{_LOGIN_WORDS})(?: (?:with|via|using|mit|avec|con|met|med|com|z|to) .{{1,40}})?"
    r"|(?:continue|weiter|continuer|continuar|continua|doorgaan) (?:with|mit|avec|con|com|met) .{1,40}"
    r"|sso|single sign-on)\s*$",
    re.IGNORECASE | re.MULTILINE,
)
"""A whole label of a button or link that leads to a log-in."""
ACCOUNT: Final = re.compile(
    r"(?<!\w)(?:user|password|account|cookie|member|credentials|benutzer|passwort|konto|zugangsdaten"
    r"|mot de passe|identifiant|compte|contraseña|usuari|cuenta|senha|usuári|conta|utente|gebruiker"
    r"|wachtwoord|hasł|użytkownik|lösenord|пароль|логин|учётн|учетн)|パスワード|会員|アカウント|クッキー|密码|账号|帐户|비밀번호",
    re.IGNORECASE,
)
"""A word that texts beside a log-in have."""
PROTECTED: Final = re.compile(
    r"password[- ]protected|enter (the|your|a|store)( \w+)? password|passwortgeschützt"
    r"|protégée? par (un )?mot de passe|protegid[oa] (con|por) (contraseña|senha)|protett[oa] da password"
    r"|beveiligd met een wachtwoord",
    re.IGNORECASE,
)

_SEPARATORS: Final = re.compile(r"\s+[-–—|·•»«:/]+\s+|\s*[|»«]\s*")
_SENTENCES: Final = re.compile(r"(?<=[^\W\d]{2})[.!?](?=\s|$)|[。!?\n]")
_TOKEN: Final = re.compile(r"[^\W_]+(?:['’]t(?!\w))?")
_EXCLAMATION: Final = re.compile(r"\W*[^\W\d_]+(?:[ '’][^\W\d_]+){0,2}\s*[!,…。]+\s*")
"""Up to three words before a notice: "Aïe !", "Lo sentimos,"."""
_EXCLAMATIONS: Final = 2
_PAGES: Final = _words(
    """
    page webpage site file document resource url location address seite webseite datei dokument adresse
    fichier ressource página documento archivo dirección recurso arquivo endereço pagina indirizzo risorsa
    bestand strona strony stronę plik страница страницы страницу страниц документ файл stránka stránku
    sidan siden oldal sayfa sivu sivua
    """
)
"""What a browser asks for."""
_THINGS: Final = _PAGES | _words(
    """
    article item product post entry content topic thread listing inhalt artikel beitrag produkt contenu
    produit contenido artículo producto conteúdo artigo produto contenuto articolo prodotto artykuł запись
    app video vidéo vídeo видео photo foto image imagen imagem immagine user usuario profile perfil profil
    annonce anzeige anuncio annuncio anúncio advert offer offre oferta offerta angebot ogłoszenie job
    объявление
    """
)
"""What a page can be about, and may have been taken away."""
_NEGATIONS: Final = _words(
    """
    not no non cannot can't couldn't doesn't isn't wasn't don't won't unable nicht keine kein pas plus
    nothing não nie niet не ikke inte nem ei
    """
)
_PRESENT: Final = _words(
    """
    found find such exist exists available here longer gefunden finden vorhanden verfügbar existiert gibt
    trouvé trouvée trouver existe disponible encontrada encontrado encontró encuentra encontrar
    encontramos hallada disponível localizada localizado trovata trovato trovare esiste disponibile
    znaleziona znaleziono znaleźć odnaleziono istnieje dostępna найдена найден найдено найти существует
    обнаружена gevonden vinden bestaat beschikbaar hittas hittades finns fundet funnet findes található
    löydy löytynyt hay há ma znaleźliśmy trouvons dostępne dostępny доступна доступен verfügbare
    disponibles
    """
)
"""With a negation: it is not."""
_FOUND: Final = _words(
    """
    found gefunden trouvé trouvée encontrada encontrado trovata trovato znaleziona znaleziono найдена
    найден найдено gevonden
    """
)
"""A notice with a negation alone: "Nicht gefunden"."""
_GONE: Final = _words(
    """
    introuvable deleted removed gone unavailable gelöscht entfernt supprimée supprimé inexistante
    eliminada eliminado inexistente removida removido rimossa rimosso inesistente usunięta verwijderd
    удалена удален отсутствует нет brak nenalezena neexistuje bulunamadı
    """
)
_CODES: Final = frozenset(("404", "410"))
_OF_CODES: Final = _words(
    """
    http error errors code status page seite página pagina gone fehler fehlercode erreur erro errore błąd
    ошибка fel fout virhe hiba
    """
)
"""What stays beside a code that is a notice by itself."""
_OTHERS: Final = _words(
    """
    the this that these your you a an we re were are have has had been is was be may might could can does
    do did looking for tried to trying open reach access view visit wanted want requested request entered
    asked which what it s or on at in of by server website there anymore any moved sorry oops ooops whoops
    hmm oh uh ups but unfortunately private privée privato privada privado prywatna privat die der das den
    dem diese dieser dieses diesem angeforderte angeforderten gesuchte gesuchten gewünschte gewünschten
    aufgerufene aufgerufenen wurde konnte kann konnten können werden ist war es leider mehr hier sie
    suchen gesucht aufgerufen haben wir ihnen ihr ihre auf unter unserem unserer oder möglicherweise
    hoppla entschuldigung de het deze dit u je zoekt zocht opgevraagde gevraagde werd kon worden helaas
    meer op onze la le les l d cette cet ce votre demandée demandé que qui vous cherchez recherchez
    recherchée avez êtes est été n ne peut être pu nous avons désolé désolée malheureusement ou à sur
    serveur el los esta este su busca buscas buscando está estás solicitada solicitado solicitó ha han
    sido se pudo puede ser lo sentimos usted o ya en servidor hemos fue podido al parecer essa sua você
    procura procurou procurando foi pôde possível desculpe neste mais e il questa questo che stai cercando
    cerchi cerca hai cercato richiesta richiesto è stata stato può essere ci dispiace abbiamo più siamo
    spiacenti c esiste ta ten takiej tej podana wskazana żądana której który szukasz szukana została
    został jest przepraszamy lub na tym serwerze już pod podanym adresem tato požadovaná byla nebyla det
    du letar efter kunde kunne blev ble эта этой этот такая такой данная запрошенная запрашиваемая вы вами
    которую который ищете искали была был к сожалению нашем этом сайте или больше по этому указанному
    адресу на é demandez seems seem looks appears appear like scheint wohl semble parece sembra wygląda
    lijkt кажется похоже eso ese esa aquel dat
    """
)
_FEW: Final = 3
_KNOWN: Final = _THINGS | _NEGATIONS | _PRESENT | _FOUND | _GONE | _OF_CODES | _OTHERS
_QUALIFIED: Final = re.compile(
    r"(?<!\w)(?:that|which|die|das|qui|que|che|który|która|które|котор\w+)"
    r" (?:n[o'’]|not|does|doesn['’]t|can(?:no|['’])t|nicht|no|não|non|nie|не)(?!\w)",
    re.IGNORECASE,
)
"""The page that does not exist: a subject."""
_BRACKETS: Final = re.compile(r"【[^】]*】|[(（\[][^)）\]]*[)）\]]")
_JAPANESE: Final = re.compile(
    r".{0,16}(?:ページ|記事|商品|ファイル|コンテンツ)(?:は|が|を)?.{0,8}"
    r"(?:見つかりません|見つけられません|存在しません|ありません|ございません|削除されました|表示できません)(?:でした)?[。!]?"
    r"|.{0,10}(?:页面|頁面|网页|網頁).{0,4}(?:不存在|未找到|找不到|没有找到|删除)了?[。!]?"
    r"|.{0,6}(?:找不到|未找到).{0,8}(?:页面|頁面|网页|網頁)[。!]?|.{0,8}페이지를 찾을 수 없습니다[.!]?"
)


def parts_of(title: str | None) -> list[str]:
    """Return a title and its parts; sites put their name before or after it."""
    whole = " ".join((title or "").split())[:LINE]
    after = whole.rpartition(": ")[2]
    return list(dict.fromkeys(part for part in (whole, *_SEPARATORS.split(whole), after) if part))


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, "" if it is long."""
    start = text[: LINE + 1].strip()
    found = _SENTENCES.search(start)
    if found is None:
        return start if len(start) <= LINE else ""
    return start[: found.end()].strip()


def says_missing(line: str, *, of_pages: bool = False) -> bool:
    """Return whether a title, heading or sentence says that there is no such page, and nothing else.

    Each of its words is one of such notices, so that a line with a subject of its own is none. `of_pages`:
    the line must name a page, or an address, and not an article or product.
    """
    for _ in range(_EXCLAMATIONS + 1):
        if _is_notice(line, of_pages=of_pages):
            return True
        found = _EXCLAMATION.match(line)
        if found is None:
            return False
        line = line[found.end() :]
    return False


def names_page(text: str) -> bool:
    """Return whether a text speaks of pages, files or addresses."""
    return not _PAGES.isdisjoint(_TOKEN.findall(text.lower())) or "ページ" in text


def _is_notice(line: str, *, of_pages: bool) -> bool:
    if _JAPANESE.fullmatch(_BRACKETS.sub("", line).strip().removeprefix("404").lstrip(" :-|")) is not None:
        return True
    words = _TOKEN.findall(line.lower().replace("\u2019", "'"))
    rest = [word for word in words if word not in _CODES]
    coded = len(rest) < len(words)
    if coded and not of_pages and _OF_CODES.issuperset(rest):
        return words[-1] not in _CODES or _PAGES.isdisjoint(rest)
    if line.rstrip().endswith("?") or not _KNOWN.issuperset(rest) or _QUALIFIED.search(line) is not None:
        return False
    absent = not _GONE.isdisjoint(rest) or not (_NEGATIONS.isdisjoint(rest) or _PRESENT.isdisjoint(rest))
    if (_PAGES if of_pages else _THINGS).isdisjoint(rest):
        return absent and not of_pages and (coded or (len(rest) <= _FEW and not _FOUND.isdisjoint(rest)))
    return absent


_SHELL: Final = 250
"""Characters of Markdown."""
_SOME: Final = 600
_LOOKED_AT: Final = 2_000
"""Characters of a heading or a notice."""
_PLACES: Final = 20
_SERVER_ERROR: Final = re.compile(
    r"(?:http )?(?:error )?(?:5\d\d[\s:\u2013-]*)?(?:internal server error|bad gateway"
    r"|service (?:temporarily )?unavailable"
    r"|gateway time-?out|server error(?: \(500\))?|application error|backend fetch failed)"
    r"|(?:http )?(?:error )?50[0234](?: error)?"
    r"|error establishing a database connection|site en maintenance|an unexpected error occurred",
    re.IGNORECASE,
)
_WANTS_SCRIPTS: Final = re.compile(
    r"\b(enable|requires?|need|activate|turn on|without)\b[^.]{0,40}\b(javascript|JS\b)", re.IGNORECASE
)
_CHALLENGE: Final = re.compile(
    r"\b(verify (that )?you('|\u2019)?( a)?re (a )?(human|not a (ro)?bot)|verifying you are human"
    r"|checking (your|if the site connection is secure|the site connection) ?(browser)?"
    r"|are you a (ro)?bot\?|just a moment\.\.\."
    r"|press (&|and) hold to confirm you are|robot check|pardon our interruption|one more step"
    r"|attention required! \| cloudflare|you have been blocked|incapsula incident id|ddos protection by"
    r"|access denied.{0,400}(reference #|error code 1020|ray id)|human verification"
    r"|complete the (security check|captcha)|enter the characters you see below)",
    re.IGNORECASE | re.DOTALL,
)
_CHALLENGERS: Final = ("_cf_chl_opt", "anubis_challenge", "captcha-delivery.com/c", "px-captcha", "gokuProps")
"""Names in the scripts of such checks, in whatever language they are shown."""
_LOADING: Final = re.compile(r"\W*(loading|please wait|wird geladen|chargement)\W*", re.IGNORECASE)
_CONSENT: Final = re.compile(
    r"\b(before you continue|(we value|we respect|about) your privacy|your privacy|cookies?"
    r"|privatsphäre|datenschutz-?einstellungen|vie privée)\b",
    re.IGNORECASE,
)
_AGREE: Final = re.compile(
    r"\s*((i )?(accept|agree|consent|allow)|(alle )?(akzeptieren|zustimmen)|(tout )?accepter|aceptar"
    r"|accetta)\b",
    re.IGNORECASE,
)
_MOUNTS: Final = "#root, #app, #__next, #__nuxt, #___gatsby, app-root, [ng-app], [data-reactroot], #svelte"


def blocked(
    tree: LexborHTMLParser, html: str, title: str | None, headings: list[str], markdown: str
) -> ErrorCode | None:
    """Return why the page is not shown: scripts, a check for humans, a failed server, consent."""
    head = f"{title or ''}\n{_text(tree, 'h1')}"
    short = len(markdown) <= _SHELL
    challenged = len(markdown) <= _SOME and any(mark in html for mark in _CHALLENGERS)
    if challenged or (len(markdown) <= _SOME and _CHALLENGE.search(f"{head}\n{markdown}")):
        return ErrorCode.NEEDS_JAVASCRIPT
    if short and tree.css_first("script") is not None and _is_shell(tree, f"{head}\n{markdown}"):
        return ErrorCode.NEEDS_JAVASCRIPT
    if short and any(_SERVER_ERROR.fullmatch(each.strip(" .!")) for each in headings):
        return ErrorCode.EMPTY_CONTENT
    if short and _CONSENT.search(f"{head}\n{_text(tree, 'h2')}") and _agrees(tree):
        return ErrorCode.EMPTY_CONTENT
    return None


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
