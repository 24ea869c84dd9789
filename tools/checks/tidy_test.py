#!/usr/bin/env python3
"""Plants one offence of each kind into a small clean tree and asks that tidy.py, or layering.sh, names it."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import tidy

HERE = os.path.dirname(os.path.abspath(__file__))
MARKER = "TO" "DO"

# A tree without offences; words that are banned in code stand in its comments and texts.
CLEAN = {
    "CMakeLists.txt": "add_subdirectory(libactor)\n",
    "libactor/CMakeLists.txt": "troupe_library(actor PUBLIC_HEADERS a.hpp b.hpp SOURCES a.cpp)\n",
    "libactor/a.hpp": "#pragma once\n\n/// Never sleep_for here, nor popen().\nint a();\n",
    "libactor/b.hpp": "#pragma once\n",
    "libactor/a.cpp": '#include "libactor/a.hpp"\n\n#include <string>\n\n'
                      "int a() { return std::string(\"caf::infinite\").size() + 10'000; }  // == secret\n",
    "libactor/internal/messages.hpp": "#pragma once\n\nCAF_ADD_ATOM(a, a, b, \"b\")\n",
    "tests/CMakeLists.txt": "troupe_tests(libactor SOURCES libactor/a_test.cpp)\n",
    "tests/libactor/a_test.cpp": '#include "libactor/a.hpp"\n\n#include "libactor/internal/messages.hpp"\n\n'
                                 'TEST_CASE("a: is ten thousand") {}\n',
}

CODE = "libactor/a.cpp"

# rule -> (file, line that is appended to it): each must be found, and nothing else with it.
BANNED = {
    "type-id": [(CODE, 'CAF_ADD_ATOM(x, x, y, "y")')],
    "inspect": [("libactor/b.hpp", "template <class F> auto inspect(F& f, X& x);")],
    "float-vector": [("libactor/internal/messages.hpp", "struct Gradients { std::vector<float> all; };")],
    "actor-system": [(CODE, "caf::actor_system_config config;")],
    "infinite": [(CODE, "self->request(peer, caf::infinite, 1);")],
    "link": [(CODE, "self->link_to(peer);")],
    "await": [(CODE, "self->request(peer, 1s).await([](int) {});")],
    "plain-basp": [(CODE, "system.middleman().publish(a, 0);"), (CODE, "system.middleman().open(0);"),
                   (CODE, "io::remote_spawn<X>(n);")],
    "plain-dial": [(CODE, "system.middleman().remote_actor(host, port);")],
    "automatic-connections": [(CODE, 'set("middleman.enable-automatic-connections", true);')],
    "plain-tls": [(CODE, "auto* c = SSL_CTX_new(TLS_client_method());"), (CODE, "f(TLS_server_method());"),
                  (CODE, "SSL_set_verify(ssl, SSL_VERIFY_NONE, nullptr);"), ("tests/libactor/a_test.cpp", "f(TLS_method());")],
    "basp-inside": [(CODE, "anon_send(broker, caf::connect_atom::value);"), (CODE, "caf::publish_atom a;"),
                    (CODE, "caf::io::basp_broker* b;"), (CODE, "class Mine : caf::io::network::scribe_impl {};")],
    "listen": [(CODE, "  ::listen(fd, 5);"), (CODE, "if (::bind(fd, a, n) != 0) {}"), (CODE, "  listen(fd, 5);")],
    "caf-openssl": [(CODE, "caf::openssl::publish(a, 0);"), (CODE, "#include <caf/openssl/all.hpp>")],
    "heartbeat": [(CODE, 'set("middleman.heartbeat-interval", 1s);')],
    "stealing": [(CODE, 'set("scheduler.policy", caf::atom("stealing"));')],
    "shutdown": [(CODE, "system.await_actors_before_shutdown(false);")],
    "capture-all": [(CODE, "auto f = [=] { return x; };")],
    "sleep": [(CODE, "std::this_thread::sleep_for(1s);"), (CODE, "usleep(10);"), (CODE, "  sleep(1);"),
              ("tests/libactor/a_test.cpp", "void f() { ::sleep(1); }")],
    "clock": [(CODE, "auto t = std::chrono::steady_clock::now();"), (CODE, "clock_gettime(CLOCK_MONOTONIC, &t);"),
              (CODE, "auto t = std::time(nullptr);")],
    "random": [(CODE, "std::random_device d;"), (CODE, "int i = rand();"), (CODE, "getrandom(&x, 8, 0);")],
    "throwing-files": [(CODE, "if (fs::exists(a / b)) {}"), (CODE, "auto s = std::filesystem::status(p).type();"),
                       (CODE, "if (at->is_directory()) {}"), (CODE, "for (const auto& e : fs::directory_iterator(p, error)) {}")],
    "shell": [(CODE, '  system("ls");'), (CODE, 'auto r = std::system("ls");'), (CODE, 'f(popen("ls", "r"));')],
    "wait-any": [(CODE, "waitpid(-1, &s, 0);"), (CODE, "waitid(P_ALL, 0, &i, WEXITED);"), (CODE, " wait(nullptr);")],
    "capnp-limit": [(CODE, "options.traversalLimitInWords = 1 << 30;"), (CODE, "options.nestingLimit = 1000;")],
    "secret-compare": [(CODE, "if (join_secret == given) {}"), (CODE, "if (a == expected_hmac) {}"),
                       (CODE, "if (memcmp(token.data(), b, 32)) {}"), (CODE, "if (password != p) {}")],
    "diagnostic": [(CODE, '#pragma GCC diagnostic ignored "-Wall"')],
    "add-test": [("tests/CMakeLists.txt", "add_test(NAME x COMMAND y)")],
    "marker": [(CODE, f"// {MARKER}: all of it"), ("CMakeLists.txt", f"# {MARKER}"), (CODE, "<" * 7 + " ours")],
    "own-machine": [(CODE, "// see /home/" + "ann/notes"), ("CMakeLists.txt", "set(x /work" + "/x)")],
    "getter": [("libactor/b.hpp", "int get_count();")],
}

# rule -> files that are changed or added (None: removed).
SHAPES = {
    "not-built": [{"libactor/c.cpp": "int c;\n"}, {"tests/libactor/b_test.cpp": 'TEST_CASE("b: is") {}\n'},
                  {"tests/CMakeLists.txt": "troupe_tests(libactor SOURCES\n  # libactor/a_test.cpp\n)\n"}],
    "listed-twice": [{"libactor/CMakeLists.txt": "troupe_library(actor\n  PUBLIC_HEADERS a.hpp b.hpp\n  SOURCES\n    a.cpp\n"
                                                 "    a.cpp\n  LINK x)\n"}],
    "not-listed": [{"libactor/c.hpp": "#pragma once\n"}],
    "unused": [{"libactor/internal/c.hpp": "#pragma once\n"}],
    "pragma-once": [{"libactor/b.hpp": "int b();\n"}],
    "own-header": [{CODE: '#include <string>\n\n#include "libactor/a.hpp"\n'}],
    "include": [{CODE: '#include "libactor/a.hpp"\n#include "b.hpp"\n'},
                {CODE: '#include "libactor/a.hpp"\n#include <libactor/b.hpp>\n'},
                {CODE: '#include "libactor/a.hpp"\n#include "libactor/gone.hpp"\n'}],
    "test-name": [{"tests/libactor/a_test.cpp": '#include "libactor/internal/messages.hpp"\n'},
                  {"tests/libactor/a_test.cpp": '#include "libactor/internal/messages.hpp"\nTEST_CASE("a: is ") {}\n'}],
    "test-twice": [{"tests/libactor/a_test.cpp": '#include "libactor/internal/messages.hpp"\n'
                                                 'TEST_CASE("a: is") {}\nTEST_CASE("a: is") {}\n'}],
    "test-mirror": [{"tests/libactor/c_test.cpp": 'TEST_CASE("c: is") {}\n',
                     "tests/CMakeLists.txt": "x(SOURCES libactor/a_test.cpp libactor/c_test.cpp)\n"}],
    "type-twice": [{CODE: '#include "libactor/a.hpp"\n\nnamespace t {\nstruct B {\n};\n}  // namespace t\n',
                    "libactor/b.hpp": "#pragma once\n\nnamespace t {\nclass B final {\n};\n}  // namespace t\n"}],
    "blank": [{"libactor/b.hpp": "#pragma once \n"}, {"libactor/b.hpp": "#pragma once"},
              {"libactor/b.hpp": "#pragma once\n\tint b();\n"}],
}

# What layering.sh says -> a file with an include.
ARROWS = {
    "libactor/ is the bottom": ("libactor/x.cpp", '#include "tune/config.hpp"'),
    "tune/ sees libactor/ only": ("tune/x.cpp", '#include "sgd/state.hpp"'),
    "sgd/ sees tune/ and libactor/": ("sgd/x.cpp", "#include <nodes/commands.hpp>"),
    "nodes/ sees libactor/ only": ("nodes/x.cpp", '#include "tune/run.hpp"'),
    "examples are written as users write": ("examples/x.cpp", '#include "libactor/internal/zygote.hpp"'),
    "tests/ do not use these": ("tests/tools/x.cpp", '#include "examples/x.hpp"'),
    "only tests/tools test tools/": ("tests/tune/x.cpp", '# include "tools/x.hpp"'),
    "nobody builds on tests/": ("tools/x.cpp", '#include "tests/support/skip.hpp"'),
    "libactor/internal is not for these": ("tune/x.cpp", '#include "libactor/internal/system.hpp"'),
    "tune/internal is private": ("sgd/x.cpp", '#include "tune/internal/journal.hpp"'),
    "sgd/internal is private": ("tune/x.cpp", '#include "sgd/internal/rank.hpp"'),
    "LibTorch belongs to sgd/": ("tests/tune/x.cpp", "#include <torch/torch.h>"),
    "CAF stays out of public headers": ("tune/schedulers/x.hpp", "#include <caf/actor.hpp>"),
    "public headers are installed, internal ones are not": ("tune/x.hpp", '#include "tune/internal/journal.hpp"'),
    "spdlog in .cpp files only": ("libactor/internal/x.hpp", "#include <spdlog/fwd.h>"),
}


def planted(changes):
    """A folder with the clean tree and these changes."""
    root = tempfile.mkdtemp(prefix="tidy_test.")
    for path, text in {**CLEAN, **changes}.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)
    return root


class Canaries(unittest.TestCase):
    def rules_of(self, changes):
        """The rules that tidy.py names in the clean tree with these changes."""
        root = planted(changes)
        self.addCleanup(shutil.rmtree, root)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = tidy.main([root])
        rules = set(re.findall(r"^\S+:\d+: ([\w-]+): ", out.getvalue(), re.MULTILINE))
        self.assertEqual(code, 1 if rules else 0, out.getvalue())
        return rules

    def test_clean_tree(self):
        self.assertEqual(self.rules_of({}), set())

    def test_every_banned_word_is_found(self):
        self.assertEqual(set(BANNED), {rule.name for rule in tidy.RULES}, "a canary for each rule")
        for rule, plants in BANNED.items():
            for path, line in plants:
                with self.subTest(rule=rule, line=line):
                    self.assertEqual(self.rules_of({path: CLEAN[path] + line + "\n"}), {rule})

    def test_a_reason_excuses(self):
        for before, behind, rules in (("// tidy: sleep: the probe\n", "", set()),
                                      ("", "  // tidy: sleep: the probe", set()),
                                      ("", "  // tidy: sleep:", {"sleep"}),
                                      ("", "  // tidy: clock: the probe", {"sleep"})):
            with self.subTest(before=before, behind=behind):
                self.assertEqual(self.rules_of({CODE: f"{CLEAN[CODE]}{before}usleep(1);{behind}\n"}), rules)

    def test_every_shape_is_found(self):
        for rule, plants in SHAPES.items():
            for changes in plants:
                with self.subTest(rule=rule, changes=changes):
                    self.assertIn(rule, self.rules_of(changes))

    def test_every_arrow_is_found(self):
        script = os.path.join(HERE, "layering.sh")

        def offences(changes):
            root = planted(changes)
            self.addCleanup(shutil.rmtree, root)
            done = subprocess.run([script, root], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1 if done.stdout else 0, done.stderr)
            return done.stdout

        self.assertEqual(offences({}), "")
        with open(script, encoding="utf-8") as file:
            whys = [line.split("'")[1] for line in file if line.startswith("forbid '")]
        self.assertEqual(sorted(ARROWS), sorted(whys), "a canary for each arrow")
        for why, (path, line) in ARROWS.items():
            with self.subTest(why=why):
                self.assertIn(why, offences({path: line + "\n"}))


if __name__ == "__main__":
    unittest.main()
