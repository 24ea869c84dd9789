#!/usr/bin/env python3
"""tidy.py [ROOT]: what a script can see of how Troupe is written. Prints each offence as "file:line: rule: way out".

A rule may be broken for a reason: the line, or the comment line above it, then says "tidy: RULE: reason".
Exit codes: 0 clean, 1 offences, 2 wrong use. Long files are told, but are no offence.
"""

import os
import re
import sys
from dataclasses import dataclass

FOLDERS = ("libactor", "tune", "sgd", "nodes", "examples", "tests", "tools")
CODE = (".cpp", ".hpp")
LONG_FILE_LINES = 600
MARKERS = "|".join(("TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK", "WI" "P", "DO NOT " "SUBMIT"))


@dataclass(frozen=True)
class Rule:
    """A pattern that is banned where `banned_in` matches the path and `allowed_in` does not."""

    name: str
    pattern: str
    instead: str
    allowed_in: str = r"(?!)"
    banned_in: str = r".*\.(cpp|hpp)$"
    view: str = "code"  # "code": without comments and texts; "text": without comments; "raw"


LIBRARIES = r"(libactor|tune|sgd|nodes)/.*\.(cpp|hpp)$"
# Rules whose reason is specs of CAF 0.17.6 say so by "CAF:".
RULES = (
    # --- messages and actors ---
    Rule("type-id", r"\b(CAF_BEGIN_TYPE_ID_BLOCK|CAF_END_TYPE_ID_BLOCK|CAF_ADD_TYPE_ID|CAF_ADD_ATOM)\b",
         "put it into the library's internal/messages.hpp", allowed_in=r".*/internal/(\w+_)?messages\.hpp$|libactor/actor\.hpp$|tests/"),
    Rule("inspect", r"\binspect\s*\(\s*(\w+\s*&|caf::)",
         "put it into the library's internal/messages.hpp",
         allowed_in=r".*/internal/(\w+_)?messages\.(hpp|cpp)$|libactor/(actor|blob|id|peer)\.|tests/|examples/"),
    Rule("float-vector", r"\bstd::vector<\s*(float|double)\s*>",
         "send a Blob: CAF serialises these element by element", banned_in=r"(?!tests/).*/internal/(\w+_)?messages\.hpp$"),
    Rule("actor-system", r"\bactor_system_config\b", "build it by libactor/internal/system.hpp",
         allowed_in=r"libactor/(internal/system\.|actor\.hpp$)|tests/"),
    Rule("infinite", r"\bcaf::infinite\b", "take a time-out from libactor/limits.hpp"),
    Rule("link", r"\blink_to\s*\(", "monitor it: a link ends the healthy side too (CAF: rule 8)"),
    Rule("await", r"\.\s*await\s*\(", "use .then: await suspends down and exit messages (CAF: rule 8)"),
    Rule("plain-basp", r"middleman\(\)\s*\.\s*(publish|open|spawn_server|publish_local_groups)\b|\bremote_spawn\b",
         "listen by libactor/internal/channel.hpp: one unauthenticated packet is a crash (CAF: rule 1)"),
    Rule("plain-dial", r"middleman\(\)\s*\.\s*(remote_actor|connect|remote_group|remote_lookup|spawn_client)\b",
         "dial by libactor/internal/channel.hpp: CAF's own has no deadline (CAF: rule 7)"),
    Rule("automatic-connections", r"enable-automatic-connections",
         "dial explicitly: this opens a plain port by itself (CAF: rule 1)", view="text"),
    Rule("plain-tls", r"\b(SSL_CTX_new\w*|SSL_VERIFY_NONE|TLS(_client|_server)?_method)\b",
         "take a context of libactor/internal/tls.hpp: it checks the peer's name and role",
         allowed_in=r"libactor/internal/tls\."),
    Rule("basp-inside", r"\b(connect_atom|publish_atom|basp_broker|scribe_impl|doorman_impl)\b",
         "go by libactor/internal/channel.hpp: what BASP takes as it is, it trusts (CAF: rule 1)",
         allowed_in=r"libactor/internal/(basp|caf_fixes)\."),
    Rule("listen", r"(?<![\w.>])::(listen|bind)\s*\(|(?<![\w.>:])listen\s*\(\s*\w+\s*,",
         "listen by libactor/internal/acceptor.hpp: it has deadlines and counts strangers",
         allowed_in=r"libactor/internal/acceptor\.|tests/"),
    Rule("caf-openssl", r"\bopenssl::(publish|unpublish|remote_actor|manager)\b|caf/openssl/",
         "use libactor/internal/channel.hpp: one failing peer cuts all others (CAF: rule 2)", view="text"),
    Rule("heartbeat", r"middleman\.(heartbeat-interval|connection-timeout)|[\"'](heartbeat-interval|connection-timeout)",
         "send our own beats: CAF's count a long message as silence (CAF: rule 5)", view="text"),
    Rule("stealing", r"[\"']stealing[\"']|work-stealing", "scheduler.policy is sharing (CAF: rule 4)", view="text"),
    Rule("shutdown", r"\bawait_actors_before_shutdown\b",
         "end every actor, then leave under the watchdog of internal/system.hpp (CAF: rule 10)"),
    Rule("capture-all", r"\[=\]", "capture by name: which `self`, and how long does it live?"),
    # --- the world is an argument ---
    Rule("sleep", r"\b(sleep_for|sleep_until|usleep|nanosleep|clock_nanosleep)\b|(?<![\w.>])(?:::)?sleep\s*\(",
         "wait for a condition with a deadline, or take a Clock", allowed_in=r"libactor/clock\.|tools/"),
    Rule("clock", r"\b(steady_clock|system_clock|high_resolution_clock)::now\b|\b(clock_gettime|gettimeofday)\s*\("
         r"|(?<![\w.>])(?:std::|::)?time\s*\(\s*(nullptr|NULL|0|&)",
         "take a Clock by constructor",  # but deadlines of poll() and the like are the kernel's
         allowed_in=r"libactor/(clock|internal/(channel|process|socket|zygote\w*))\.|tools/|tests/"),
    Rule("random", r"\brandom_device\b|\bgetrandom\s*\(|\bgetentropy\s*\(|(?<![\w.>:])(?:std::)?s?rand\s*\(",
         "randomness comes from a seed, ids from libactor/id.hpp", allowed_in=r"libactor/id\."),
    Rule("throwing-files", r"\b(fs|filesystem)::(exists|status|symlink_status|is_\w+|file_size|space|absolute|canonical|rename"
         r"|remove|remove_all|create_director\w+)\s*\((?![^;{]*,\s*(error|failed|gone|none|ignored)\))"
         r"|(->|\.)(is_directory|is_regular_file|is_symlink|symlink_status)\(\)|\s:\s*(\w+::)*directory_iterator\(",
         "give it a std::error_code (in a loop: `increment` too): without, a folder that can't be read ends the program",
         banned_in=r"(libactor|tune|sgd|nodes)/.*\.(cpp|hpp)$|(tools|examples)/\w+\.(cpp|hpp)$"),
    # --- processes ---
    Rule("shell", r"(?:^|[;{}(=!,&|?]|\breturn\b)\s*(?:std::|::)?(?:system|popen)\s*\(",
         "start a program by libactor/internal/process.hpp: no shell between"),
    Rule("wait-any", r"\bwaitpid\s*\(\s*-\s*1|\bwaitid\s*\(\s*P_ALL|\bwait[34]\s*\(\s*-\s*1"
         r"|(?<![\w.>:])(?:::)?wait\s*\(\s*(nullptr|NULL|&\s*\w+)\s*\)",
         "wait for a pid that you know: other children are the user's",
         allowed_in=r"libactor/internal/zygote\w*\.", banned_in=LIBRARIES),
    # --- what comes from outside ---
    Rule("capnp-limit", r"\b(traversalLimitInWords|nestingLimit)\b", "Cap'n Proto's default limits stay"),
    Rule("secret-compare", r"\b\w*(secret|hmac|password)\w*(\(\))?\s*[=!]=(?!\s*nullptr)|[=!]=\s*\w*(secret|hmac|password)"
         r"|\bmemcmp\s*\([^;]*(secret|hmac|password|token)|\btoken\s*[=!]=\s*\w",
         "compare by CRYPTO_memcmp: == tells by its time how much was right"),
    # --- the build ---
    Rule("add-test", r"\badd_test\s*\(", "troupe_check or troupe_tests: each test has labels and a time-out",
         banned_in=r"(?!tools/cmake/).*(CMakeLists\.txt|\.cmake)$", view="raw"),
    # --- words ---
    Rule("diagnostic", r"#\s*pragma\s+(GCC|clang)\s+diagnostic", "cure the warning"),
    Rule("marker", rf"\b({MARKERS})\b|^(<{{7}}|>{{7}}) ", "do it, or leave it out", banned_in=r".*", view="raw"),
    Rule("own-machine", r"(?<![\w.$}~*-])/(work|tmp/w|root|home/\w+|Users/\w+)/", "name no folder of one machine",
         banned_in=r".*", view="raw"),
    Rule("getter", r"\bget_(?!model\b|local_operator\b|or\b)\w+\s*\(", "call it by its noun: no get_",
         banned_in=r"(libactor|tune|sgd)/(?!internal/)(\w+/)?\w+\.hpp$", allowed_in=r".*/internal/"),
)

TOKEN = re.compile(
    r'(?P<raw>\b(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")'
    r"|(?P<line>//[^\n]*)|(?P<block>/\*.*?\*/)"
    r'|(?P<text>"(?:\\.|[^"\\\n])*")'
    r"|(?P<keep>\b[0-9](?:'?[\w.])*|[A-Za-z_]\w*)"
    r"|(?P<char>'(?:\\.|[^'\\\n])+')", re.DOTALL)


def blank(source, kinds):
    """`source` with the insides of these kinds of token made blank, line ends kept."""

    def one(match):
        if match.lastgroup == "tag":
            kind = "raw"
        else:
            kind = match.lastgroup
        return re.sub(r"[^\n\"']", " ", match.group()) if kind in kinds else match.group()

    return TOKEN.sub(one, source)


INSIDE_TEXT = r'(?:\\.|[^"\\\n])*'


class Tree:
    """The files under a root that are ours, each read once."""

    def __init__(self, root):
        self.root = root
        self.files = {}
        self.offences = []
        self.notes = []
        top = [name for name in sorted(os.listdir(root)) if os.path.isfile(os.path.join(root, name))]
        self.paths = [name for name in top if not name.startswith(".git")]
        for folder in FOLDERS + (".ci",):
            for place, folders, names in os.walk(os.path.join(root, folder)):
                folders[:] = sorted(f for f in folders if f not in ("__pycache__", "build"))
                self.paths += [os.path.relpath(os.path.join(place, name), root) for name in sorted(names)]
        for path in self.paths:
            try:
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    self.files[path] = file.read()
            except UnicodeDecodeError:  # golden bytes
                pass

    def offend(self, path, offset, rule, way_out):
        """Notes an offence, unless the line or the one above gives a reason for it."""
        lines = self.files[path].split("\n")
        number = self.files[path].count("\n", 0, offset)
        excuse = re.compile(rf"tidy: {rule}: \S")
        if excuse.search(lines[number]) or (number > 0 and excuse.search(lines[number - 1])):
            return
        self.offences.append(f"{path}:{number + 1}: {rule}: {way_out}\n    {lines[number].strip()[:160]}")

    def code(self, *suffixes):
        return [path for path in self.files if path.endswith(suffixes or CODE)]


def banned(tree):
    """The table above."""
    for path, source in tree.files.items():
        views = {"raw": source}
        for rule in RULES:
            if not re.match(rule.banned_in, path) or re.match(rule.allowed_in, path):
                continue
            if rule.view not in views:
                kinds = {"line", "block"} if rule.view == "text" else {"line", "block", "raw", "text", "char"}
                views[rule.view] = blank(source, kinds)
            for match in re.finditer(rule.pattern, views[rule.view], re.MULTILINE):
                inside = match.group()
                tree.offend(path, match.start() + len(inside) - len(inside.lstrip()), rule.name, rule.instead)


def listed(tree):
    """Every source, test and public header stands in a CMakeLists.txt; every internal header is used."""
    lists = {path: re.sub(r"#[^\n]*", "", text) for path, text in tree.files.items()
             if os.path.basename(path) == "CMakeLists.txt"}
    for path, text in lists.items():
        for call in re.finditer(r"^\w+\([^)]*\)", text, re.MULTILINE):
            names = re.findall(r"^\s+([\w./-]+\.(?:cpp|hpp|capnp))$", call.group(), re.MULTILINE)
            for name in {name for name in names if names.count(name) > 1}:
                tree.offend(path, tree.files[path].find(name), "listed-twice", f"{name} stands there twice")
    included = {name for path in tree.code() for name in
                re.findall(r'#\s*include\s*"([^"]+)"', blank(tree.files[path], {"line", "block"}))}

    def is_listed(path):
        folder = os.path.dirname(path)
        while True:
            text = lists.get(os.path.join(folder, "CMakeLists.txt"), "")
            name = os.path.relpath(path, folder or ".")
            if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", text):
                return True
            if not folder:
                return False
            folder = os.path.dirname(folder)

    for path in tree.code(".cpp", ".capnp"):
        if not is_listed(path):
            what = "a test that no target builds" if path.endswith("_test.cpp") else "no target builds it"
            tree.offend(path, 0, "not-built", f"{what}: put it into CMakeLists.txt")
    for path in tree.code(".hpp"):
        library = path.split("/")[0] in ("libactor", "tune", "sgd")
        if library and "/internal/" not in path:
            if not is_listed(path):
                tree.offend(path, 0, "not-listed", "a public header: put it into PUBLIC_HEADERS")
        elif path not in included:
            tree.offend(path, 0, "unused", "nobody includes it: use it or remove it")


def headers(tree):
    """How a file begins, and how includes are spelt."""
    for path in tree.code():
        code = blank(tree.files[path], {"line", "block"})
        if path.endswith(".hpp") and not re.match(r"\s*#pragma once\n", code):
            tree.offend(path, 0, "pragma-once", "a header begins with #pragma once")
        found = list(re.finditer(r'^[ \t]*#\s*include\s*([<"])([^>"]+)[>"]', code, re.MULTILINE))
        own = path[:-4] + ".hpp"
        if path.endswith(".cpp") and own in tree.files and (not found or found[0].group(2) != own):
            tree.offend(path, found[0].start() if found else 0, "own-header",
                        f'#include "{own}" comes first, which proves that it stands alone')
        for match in found:
            name, quoted = match.group(2), match.group(1) == '"'
            ours = name.split("/")[0] in FOLDERS
            if ours and not quoted or quoted and not ours and not name.endswith(".capnp.h"):
                if not path.startswith("examples/"):  # written as users write
                    tree.offend(path, match.start(), "include",
                                'ours as "folder/name.hpp" from the root, others as <name>')
            elif quoted and name not in tree.files and not name.endswith(".capnp.h"):
                tree.offend(path, match.start(), "include", f"there is no {name}")


def tests(tree):
    """Test files are called *_test.cpp, mirror the tree, and no two cases of a folder have one name."""
    names = {}
    for path in tree.code(".cpp"):
        source = blank(tree.files[path], {"line", "block"})
        cases = [("".join(re.findall(rf'"({INSIDE_TEXT})"', match.group(1))), match.start())
                 for match in re.finditer(rf'\b(?:TEST_CASE|SCENARIO)\w*\s*\([^"\n]*\s*((?:"{INSIDE_TEXT}"\s*)+)', source)]
        if path.startswith("tests/") and cases and not path.endswith("_test.cpp"):
            tree.offend(path, 0, "test-name", "a file with test cases is called <what it tests>_test.cpp")
        if path.endswith("_test.cpp") and not cases:
            tree.offend(path, 0, "test-name", "no test case in it")
        for name, start in cases:
            folder = path.split("/")[1] if path.count("/") > 1 else path
            other = names.setdefault((folder, name), path)
            if other != path or [name for name, _ in cases].count(name) > 1:
                tree.offend(path, start, "test-twice", f"{other} has a case of this name")
            if name.strip() != name or "\\\\" in name:
                tree.offend(path, start, "test-name", "no blanks around it, no backslash in it")
        parts = path[:-len("_test.cpp")].split("/")
        if path.endswith("_test.cpp") and len(parts) > 2 and parts[1] in ("libactor", "tune", "sgd", "nodes"):
            places = {"/".join(parts[1:]), "/".join([parts[1], "internal"] + parts[2:])}
            if not any(f"{place}.{end}" in tree.files for place in places for end in ("hpp", "cpp", "capnp")):
                tree.offend(path, 0, "test-mirror", f"it mirrors {sorted(places)[-1]}.*, which is not there")


def types(tree):
    """A type's name is defined once in a namespace: of two the linker takes either's functions for both."""
    known = {}
    for path in tree.code():
        if path.split("/")[0] not in ("libactor", "tune", "sgd", "nodes"):
            continue
        spaces = []
        for match in re.finditer(r"^(?:namespace ([\w:]*) ?\{|(\}  // namespace)|(?:struct|class|enum class) ([\w:]+)[^;\n]*\{)",
                                 tree.files[path], re.MULTILINE):
            opened, closed, name = match.groups()
            if opened is not None:
                spaces.append(opened or path)  # what has no name is the file's own
            elif closed:
                spaces = spaces[:-1]
            elif known.setdefault((*spaces, name), path) != path:
                tree.offend(path, match.start(), "type-twice", f"{known[(*spaces, name)]} has a {name} too: rename one")


def forms(tree):
    """Length, line ends, blanks at line ends."""
    for path in tree.code(*CODE, ".py", ".sh", ".cmake", ".txt", ".md", ".capnp"):
        source = tree.files[path]
        if path.endswith(CODE) and source.count("\n") > LONG_FILE_LINES:
            tree.notes.append(f"{path}: {source.count(chr(10))} lines: is there a second idea in it?")
        for match in re.finditer(r"\r|[ \t]+$|\t" if path.endswith(CODE) else r"\r|[ \t]+$", source, re.MULTILINE):
            tree.offend(path, match.start(), "blank", "no tab, no carriage return, no blank at the end of a line")
        if source and not source.endswith("\n"):
            tree.offend(path, len(source) - 1, "blank", "a file ends with a line end")


def main(arguments):
    root = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    if len(arguments) > 1 or not os.path.isfile(os.path.join(root, "CMakeLists.txt")):
        print(__doc__.split("\n")[0])
        return 2
    tree = Tree(root)
    for check in (banned, listed, headers, tests, types, forms):
        check(tree)
    for note in tree.notes:
        print(f"note: {note}")
    for offence in sorted(tree.offences):
        print(offence)
    print(f"tidy: {len(tree.files)} files, {len(tree.offences)} offences")
    return 1 if tree.offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
