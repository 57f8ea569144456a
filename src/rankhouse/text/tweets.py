"""Tweets as Anserini's TweetAnalyzer reads them: links, #tags and @names stay whole, the rest is words.

White space splits a tweet into tokens (of at most 255 UTF-16 units, as Lucene's tokenizer cuts them). A token
that is wholly a link is kept as it stands; a tag or a name is kept in lower case. Any other token is cut at
its first delimiter and the rest is read on in the same way: "ski-team" is two words, "U.S.A." is one and
"it's" has no delimiter, because quotation marks and the like are only dropped. What counts as an entity is
what Twitter's published text rules say.

Two habits of the original are kept, because indexes must agree:

* behind an entity, the remaining words of the same token are lower-cased but not stemmed
  ("@user:Foo-Running" gives "@user", "foo", "running");
* where two cuts are pending, a third one forgets the older rest.

One is not: the original also indexes an empty word for each delimiter between nothing ("..." is three), which
only lengthens documents.

A raw word that must stay as it is starts with a space, which no split word can hold.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from rankhouse.text.lucene import MAX_WORD_UNITS, lower, stem

_NAMES = (
    "aaa aarp abarth abb abbott abbvie abc able abogado abudhabi ac academy accenture accountant "
    "accountants aco active actor ad adac ads adult ae aeg aero aetna af afamilycompany afl africa ag "
    "agakhan agency ai aig aigo airbus airforce airtel akdn al alfaromeo alibaba alipay allfinanz "
    "allstate ally alsace alstom am americanexpress americanfamily amex amfam amica amsterdam an "
    "analytics android anquan anz ao aol apartments app apple aq aquarelle ar arab aramco archi army "
    "arpa art arte as asda asia associates at athleta attorney au auction audi audible audio auspost "
    "author auto autos avianca aw aws ax axa az azure ba baby baidu banamex bananarepublic band bank bar "
    "barcelona barclaycard barclays barefoot bargains baseball basketball bauhaus bayern bb bbc bbt bbva "
    "bcg bcn bd be beats beauty beer bentley berlin best bestbuy bet bf bg bh bharti bi bible bid bike "
    "bing bingo bio biz bj bl black blackfriday blanco blockbuster blog bloomberg blue bm bms bmw bn bnl "
    "bnpparibas bo boats boehringer bofa bom bond boo book booking boots bosch bostik boston bot "
    "boutique box bq br bradesco bridgestone broadway broker brother brussels bs bt budapest bugatti "
    "build builders business buy buzz bv bw by bz bzh ca cab cafe cal call calvinklein cam camera camp "
    "cancerresearch canon capetown capital capitalone car caravan cards care career careers cars cartier "
    "casa case caseih cash casino cat catering catholic cba cbn cbre cbs cc cd ceb center ceo cern cf "
    "cfa cfd cg ch chanel channel chase chat cheap chintai chloe christmas chrome chrysler church ci "
    "cipriani circle cisco citadel citi citic city cityeats ck cl claims cleaning click clinic clinique "
    "clothing cloud club clubmed cm cn co coach codes coffee college cologne com comcast commbank "
    "community company compare computer comsec condos construction consulting contact contractors "
    "cooking cookingchannel cool coop corsica country coupon coupons courses cr credit creditcard "
    "creditunion cricket crown crs cruise cruises csc cu cuisinella cv cw cx cy cymru cyou cz dabur dad "
    "dance data date dating datsun day dclk dds de deal dealer deals degree delivery dell deloitte delta "
    "democrat dental dentist desi design dev dhl diamonds diet digital direct directory discount "
    "discover dish diy dj dk dm dnp do docs doctor dodge dog doha domains doosan dot download drive dtv "
    "dubai duck dunlop duns dupont durban dvag dvr dz earth eat ec eco edeka edu education ee eg eh "
    "email emerck energy engineer engineering enterprises epost epson equipment er ericsson erni es esq "
    "estate esurance et etisalat eu eurovision eus events everbank exchange expert exposed express "
    "extraspace fage fail fairwinds faith family fan fans farm farmers fashion fast fedex feedback "
    "ferrari ferrero fi fiat fidelity fido film final finance financial fire firestone firmdale fish "
    "fishing fit fitness fj fk flickr flights flir florist flowers flsmidth fly fm fo foo food "
    "foodnetwork football ford forex forsale forum foundation fox fr free fresenius frl frogans "
    "frontdoor frontier ftr fujitsu fujixerox fun fund furniture futbol fyi ga gal gallery gallo gallup "
    "game games gap garden gb gbiz gd gdn ge gea gent genting george gf gg ggee gh gi gift gifts gives "
    "giving gl glade glass gle global globo gm gmail gmbh gmo gmx gn godaddy gold goldpoint golf goo "
    "goodhands goodyear goog google gop got gov gp gq gr grainger graphics gratis green gripe grocery "
    "group gs gt gu guardian gucci guge guide guitars guru gw gy hair hamburg hangout haus hbo hdfc "
    "hdfcbank health healthcare help helsinki here hermes hgtv hiphop hisamitsu hitachi hiv hk hkt hm hn "
    "hockey holdings holiday homedepot homegoods homes homesense honda honeywell horse hospital host "
    "hosting hot hoteles hotels hotmail house how hr hsbc ht htc hu hughes hyatt hyundai ibm icbc ice "
    "icu id ie ieee ifm iinet ikano il im imamat imdb immo immobilien in industries infiniti info ing "
    "ink institute insurance insure int intel international intuit investments io ipiranga iq ir irish "
    "is iselect ismaili ist istanbul it itau itv iveco iwc jaguar java jcb jcp je jeep jetzt jewelry jio "
    "jlc jll jm jmp jnj jo jobs joburg jot joy jp jpmorgan jprs juegos juniper kaufen kddi ke "
    "kerryhotels kerrylogistics kerryproperties kfh kg kh ki kia kim kinder kindle kitchen kiwi km kn "
    "koeln komatsu kosher kp kpmg kpn kr krd kred kuokgroup kw ky kyoto kz la lacaixa ladbrokes "
    "lamborghini lamer lancaster lancia lancome land landrover lanxess lasalle lat latino latrobe law "
    "lawyer lb lc lds lease leclerc lefrak legal lego lexus lgbt li liaison lidl life lifeinsurance "
    "lifestyle lighting like lilly limited limo lincoln linde link lipsy live living lixil lk loan loans "
    "locker locus loft lol london lotte lotto love lpl lplfinancial lr ls lt ltd ltda lu lundbeck lupin "
    "luxe luxury lv ly ma macys madrid maif maison makeup man management mango map market marketing "
    "markets marriott marshalls maserati mattel mba mc mcd mcdonalds mckinsey md me med media meet "
    "melbourne meme memorial men menu meo merckmsd metlife mf mg mh miami microsoft mil mini mint mit "
    "mitsubishi mk ml mlb mls mm mma mn mo mobi mobile mobily moda moe moi mom monash money monster "
    "montblanc mopar mormon mortgage moscow moto motorcycles mov movie movistar mp mq mr ms msd mt mtn "
    "mtpc mtr mu museum mutual mutuelle mv mw mx my mz na nab nadex nagoya name nationwide natura navy "
    "nba nc ne nec net netbank netflix network neustar new newholland news next nextdirect nexus nf nfl "
    "ng ngo nhk ni nico nike nikon ninja nissan nissay nl no nokia northwesternmutual norton now nowruz "
    "nowtv np nr nra nrw ntt nu nyc nz obi observer off office okinawa olayan olayangroup oldnavy ollo "
    "om omega one ong onion onl online onyourside ooo open oracle orange org organic orientexpress "
    "origins osaka otsuka ott ovh pa page pamperedchef panasonic panerai paris pars partners parts party "
    "passagens pay pccw pe pet pf pfizer pg ph pharmacy phd philips phone photo photography photos "
    "physio piaget pics pictet pictures pid pin ping pink pioneer pizza pk pl place play playstation "
    "plumbing plus pm pn pnc pohl poker politie porn post pr pramerica praxi press prime pro prod "
    "productions prof progressive promo properties property protection pru prudential ps pt pub pw pwc "
    "py qa qpon quebec quest qvc racing radio raid re read realestate realtor realty recipes red "
    "redstone redumbrella rehab reise reisen reit reliance ren rent rentals repair report republican "
    "rest restaurant review reviews rexroth rich richardli ricoh rightathome ril rio rip rmit ro rocher "
    "rocks rodeo rogers room rs rsvp ru rugby ruhr run rw rwe ryukyu sa saarland safe safety sakura sale "
    "salon samsclub samsung sandvik sandvikcoromant sanofi sap sapo sarl sas save saxo sb sbi sbs sc sca "
    "scb schaeffler schmidt scholarships school schule schwarz science scjohnson scor scot sd se search "
    "seat secure security seek select sener services ses seven sew sex sexy sfr sg sh shangrila sharp "
    "shaw shell shia shiksha shoes shop shopping shouji show showtime shriram si silk sina singles site "
    "sj sk ski skin sky skype sl sling sm smart smile sn sncf so soccer social softbank software sohu "
    "solar solutions song sony soy space spiegel spot spreadbetting sr srl srt ss st stada staples star "
    "starhub statebank statefarm statoil stc stcgroup stockholm storage store stream studio study style "
    "su sucks supplies supply support surf surgery suzuki sv swatch swiftcover swiss sx sy sydney "
    "symantec systems sz tab taipei talk taobao target tatamotors tatar tattoo tax taxi tc tci td tdk "
    "team tech technology tel telecity telefonica temasek tennis teva tf tg th thd theater theatre tiaa "
    "tickets tienda tiffany tips tires tirol tj tjmaxx tjx tk tkmaxx tl tm tmall tn to today tokyo tools "
    "top toray toshiba total tours town toyota toys tp tr trade trading training travel travelchannel "
    "travelers travelersinsurance trust trv tt tube tui tunes tushu tv tvs tw tz ua ubank ubs uconnect "
    "ug uk um unicom university uno uol ups us uy uz va vacations vana vanguard vc ve vegas ventures "
    "verisign versicherung vet vg vi viajes video vig viking villas vin vip virgin visa vision vista "
    "vistaprint viva vivo vlaanderen vn vodka volkswagen volvo vote voting voto voyage vu vuelos wales "
    "walmart walter wang wanggou warman watch watches weather weatherchannel webcam weber website wed "
    "wedding weibo weir wf whoswho wien wiki williamhill win windows wine winners wme wolterskluwer "
    "woodside work works world wow ws wtc wtf xbox xerox xfinity xihuan xin xperia xxx xyz yachts yahoo "
    "yamaxun yandex ye yodobashi yoga yokohama you youtube yt yun za zappos zara zero zip zippo zm zone "
    "zuerich zw vermögensberater vermögensberatung ελ бг бел дети ею католик ком мкд мон москва онлайн "
    "орг рус рф сайт срб укр қаз հայ קום ابوظبي اتصالات ارامكو الاردن الجزائر السعودية العليان المغرب "
    "امارات ایران بارت بازار بيتك بھارت تونس سودان سورية شبكة عراق عرب عمان فلسطين قطر كاثوليك كوم مصر "
    "مليسيا موبايلي موريتانيا موقع همراه پاکستان ڀارت कॉम नेट भारत भारतम् भारोत संगठन বাংলা ভারত ভাৰত "
    "ਭਾਰਤ ભારત ଭାରତ இந்தியா இலங்கை சிங்கப்பூர் భారత్ ಭಾರತ ഭാരതം ලංකා คอม ไทย გე みんな クラウド グーグル "
    "コム ストア セール ファッション ポイント 世界 中信 中国 中國 中文网 企业 佛山 信息 健康 八卦 公司 "
    "公益 台湾 台灣 商城 商店 商标 嘉里 嘉里大酒店 在线 大众汽车 大拿 天主教 娱乐 家電 工行 广东 微博 "
    "慈善 我爱你 手机 手表 政务 政府 新加坡 新闻 时尚 書籍 机构 淡马锡 游戏 澳門 点看 珠宝 移动 组织机构 "
    "网址 网店 网站 网络 联通 诺基亚 谷歌 购物 通販 集团 電訊盈科 飞利浦 食品 餐厅 香格里拉 香港 닷넷 "
    "닷컴 삼성 한국"
)

TOP_LEVEL_DOMAINS = frozenset(_NAMES.split())


KEPT = " "

# White space as Java sees it: no-break spaces and U+0085 are none.
_tokens = re.compile("[^\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]+")
_ENTITY_DELIMITERS = frozenset("#@_＃＠")
_DELIMITERS = frozenset('!"$%()*+,-/:;<=>?[\\]^`{|}~¬·…')  # . and & depend on what stands around them
_delimiter = re.compile(f"[{re.escape(''.join(sorted(_DELIMITERS)))}.&]").search

_LATIN = (
    "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0253\u0254\u0256\u0257\u0259\u025b"
    "\u0263\u0268\u026f\u0272\u0289\u028b\u02bb\u0300-\u036f\u1e00-\u1eff"
)
_PATH = rf"[A-Za-z0-9!*';:=+,.$/%#\[\]\-\u2013_~|&@{_LATIN}\u0400-\u04ff]"
_PATH_END = rf"[A-Za-z0-9=_#/\-+{_LATIN}\u0400-\u04ff]"
_BRACKETED = rf"\((?:{_PATH}+|{_PATH}*\({_PATH}+\){_PATH}*)\)"
_QUERY = r"[A-Za-z0-9!?*'();:&=+$/%#\[\]\-_.,~|@]*[A-Za-z0-9\-_&=#/]"
_url_parts = re.compile(
    r"(?P<protocol>[Hh][Tt][Tt][Pp][Ss]?://)?(?P<domain>[^/:?]+)(?::[0-9]++)?"
    rf"(?:/(?>(?:{_PATH}*(?:{_BRACKETED}{_PATH}*)*{_PATH_END}|{_BRACKETED}|@{_PATH}+/)*))?"
    rf"(?:\?{_QUERY})?"
).fullmatch
_no_url_before = re.compile("[A-Za-z0-9@＠$#＃\ufffe\ufeff\uffff\u202a-\u202e]").match
_label = re.compile(rf"[A-Za-z0-9{_LATIN}](?:[A-Za-z0-9{_LATIN}\-]*[A-Za-z0-9{_LATIN}])?").fullmatch
_sub_label = re.compile(rf"[A-Za-z0-9{_LATIN}](?:[A-Za-z0-9{_LATIN}\-_]*[A-Za-z0-9{_LATIN}])?").fullmatch
# Any script's letters: all but punctuation, white space and the block of general punctuation.
_FOREIGN = r"""[^\-_!"#$%&'()*+,./:;<=>?@\[\]^`{|}~\t-\r \u00a0\u1680\u2000-\u206f\u3000]"""
_foreign_label = re.compile(rf"{_FOREIGN}(?:(?:{_FOREIGN}|-)*{_FOREIGN})?").fullmatch
_encoded_label = re.compile(r"[Xx][Nn]--[-0-9A-Za-z]+").fullmatch
_mention = re.compile(
    r"(?:[^A-Za-z0-9_!#$%&*@＠]|(?:[^A-Za-z0-9_+~.\-])?[Rr][Tt]:?)?"
    r"[@＠]+[A-Za-z0-9_]{1,20}(?:/[A-Za-z][A-Za-z0-9_\-]{0,24})?"
).fullmatch
_TAG_MARKS = frozenset("_·־׳״\u0f0b\u0f0c\u200c\u200d〃〜゛゜゠・\ua67e～")  # inside a tag, but no letters
_private_letter = re.compile("[\uf870-\uf87f\uf882\uf884-\uf89f\uf8b8\uf8c1-\uf8d6]").match

Located = tuple[int, int, str]


def words(text: str) -> list[str]:
    """Split a tweet into raw words; those that stay as they are begin with a space."""
    return [word for _, _, word in locate(text)]


def locate(text: str) -> Iterator[Located]:
    """Yield (start, end, raw word): the words with the characters of the tweet they came from."""
    for match in _tokens.finditer(text):
        start, end = match.span()
        surely_short = 2 * (end - start) < MAX_WORD_UNITS
        for first, last in ((start, end),) if surely_short else _within_limit(text, start, end):
            token = text[first:last]
            if token.isascii() and token.isalnum():
                yield first, last, token
            else:
                for at, to, word in _pieces(token):
                    yield first + at, first + to, word


def term(word: str) -> str:
    """Return the term of a raw word: as it is, or lower-cased, stripped to letters and digits, stemmed."""
    if word.startswith(KEPT):
        return word[1:]
    return stem(_letters_and_digits(_lower_units(word)))


def _within_limit(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a token where it reaches 255 UTF-16 units."""
    units = 0
    for position in range(start, end):
        units += 2 if text[position] > "\uffff" else 1
        if units >= MAX_WORD_UNITS:
            yield start, position + 1
            start, units = position + 1, 0
    if start < end:
        yield start, end


def _pieces(token: str) -> Iterator[Located]:
    """Read one token: entities whole, the rest cut at delimiters."""
    rest: tuple[int, int] | None = (0, len(token))
    older: tuple[int, int] | None = None
    protected = False
    while rest or older:
        (start, end), rest, older = (rest, None, older) if rest else (older or (0, 0), None, None)
        part = token[start:end]
        whole = _is_url(part)
        if not whole and _is_mention_or_tag(part):
            part = _lower_units(part)
            whole = part[0] in _ENTITY_DELIMITERS
            if not whole:  # a mark stands before it: cut there and read on
                rest = (start + _first_entity_delimiter(part), end)
                part = token[start : rest[0]]
        elif not whole:
            cut = _first_delimiter(part)
            if cut >= 0:
                rest, part = (start + cut + 1, end), part[:cut]
            whole = _is_url(part) or _is_mention_or_tag(part)
            if whole:
                part = _lower_units(part)
            elif (cut := _first_entity_delimiter(part)) >= 0:
                older = rest or older
                rest, part = (start + cut + 1, start + len(part)), part[:cut]
        if whole:
            protected = True
        elif protected:
            part = _letters_and_digits(_lower_units(part))
        if part:
            yield start, start + len(part), KEPT + part if protected else part


def _first_entity_delimiter(part: str) -> int:
    return next((i for i, character in enumerate(part) if character in _ENTITY_DELIMITERS), -1)


def _first_delimiter(part: str) -> int:
    """Find where a token that is no entity is cut, or -1. Neighbours are counted in UTF-16 units."""
    at = -1
    while match := _delimiter(part, at + 1):
        at = match.start()
        if part[at] == ".":
            if not (_two_before(part, at) in ("", ".") and _two_behind(part, at) in ("", ".")):
                return at
        elif part[at] != "&" or not _joins_capitals(part, at):
            return at
    return -1


def _joins_capitals(part: str, at: int) -> bool:
    """Whether & stands between two characters of which none is lower-case, as in AT&T."""
    return 0 < at < len(part) - 1 and not (_is_lower(part[at - 1]) or _is_lower(part[at + 1]))


def _two_before(part: str, at: int) -> str:
    if at and part[at - 1] > "\uffff":
        return part[at - 1]
    return part[at - 2] if at >= 2 else ""


def _two_behind(part: str, at: int) -> str:
    behind = part[at + 1 : at + 3]
    return behind[0] if behind[:1] > "\uffff" else behind[1:]


def _is_lower(character: str) -> bool:
    return character <= "\uffff" and character.islower()


def _lower_units(part: str) -> str:
    """Lower-case as Java does unit by unit: characters beyond U+FFFF stay."""
    if part.isascii() or max(part) <= "\uffff":
        return lower(part)
    return "".join([lower(c) if c <= "\uffff" else c for c in part])


def _letters_and_digits(part: str) -> str:
    """Drop everything else, and characters beyond U+FFFF, of which Java sees the halves."""
    if part.isascii() and part.isalnum():
        return part
    return "".join([c for c in part if c <= "\uffff" and (c.isalpha() or unicodedata.category(c) == "Nd")])


def _is_url(part: str) -> bool:
    if "." not in part:
        return False
    starts = (0,) if _no_url_before(part) else (0, 1)
    return any(_is_bare_url(part[start:]) for start in starts)


def _is_bare_url(part: str) -> bool:
    match = _url_parts(part)
    if not match:
        return False
    *labels, last = match["domain"].split(".")
    known = (last.lower() if last.isascii() else last) in TOP_LEVEL_DOMAINS
    if not labels or not (known or _encoded_label(last)):
        return False
    if _label(labels[-1]) and all(map(_sub_label, labels[:-1])):
        return True
    return bool(known and match["protocol"] and len(labels) == 1 and _foreign_label(labels[0]))


def _is_mention_or_tag(part: str) -> bool:
    if ("@" in part or "＠" in part) and _mention(part):
        return True
    if part[:1] in ("#", "＃") and _is_tag_body(part[1:]):
        return True
    return (
        part[1:2] in ("#", "＃")
        and (part[0] in "\ufe0e\ufe0f" or not (part[0] == "&" or _is_tag_character(part[0])))
        and _is_tag_body(part[2:])
    )


def _is_tag_body(body: str) -> bool:
    return (
        body[:1] not in ("\ufe0f", "\u20e3")  # that is a keycap
        and all(map(_is_tag_character, body))
        and any(map(_is_tag_letter, body))
    )


def _is_tag_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LM" or _private_letter(character) is not None


def _is_tag_character(character: str) -> bool:
    return _is_tag_letter(character) or character in _TAG_MARKS or unicodedata.category(character) == "Nd"
