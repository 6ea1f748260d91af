//! Rule texts: merging, refusals, digests, samples.

use gossip_contracts::identity::IdHashMode;
use gossip_scan::{RuleError, RuleSet, ScanOptions, Scanner};

/// A rule text with one valid rule; `changes` replaces or adds lines by their key.
fn text(changes: &[(&str, &str)]) -> String {
    let mut lines = vec![
        ("id", "\"acme-token\""),
        ("name", "\"Acme\""),
        ("anchors", "[\"acme_\"]"),
        ("regex", "'acme_[0-9a-z]{20}'"),
        ("max_len", "25"),
        ("confidence", "\"high\""),
    ];
    for change in changes {
        lines.retain(|(key, _)| key != &change.0);
        lines.push(*change);
    }
    let lines: Vec<String> = lines.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("version = 1\n[[rule]]\n{}\n", lines.join("\n"))
}

fn compile(text: &str) -> Result<Scanner, RuleError> {
    let mut rules = RuleSet::empty();
    rules.merge(text)?;
    Scanner::new(&rules, ScanOptions::default())
}

/// Checks that a rule is refused for a reason.
fn check_refused(changes: &[(&str, &str)], reason: &str) {
    let error = compile(&text(changes)).err().map(|it| it.to_string()).unwrap_or_default();
    assert!(error.contains(reason), "expected `{reason}`, got `{error}`");
}

#[test]
fn every_built_in_rule_compiles() {
    let built_in = RuleSet::built_in();
    // Merged again, the rules count as changed, and all patterns are compiled at once.
    let mut rules = RuleSet::empty();
    for text in [
        include_str!("../rules/hosting.toml"),
        include_str!("../rules/cloud.toml"),
        include_str!("../rules/messaging.toml"),
        include_str!("../rules/ai.toml"),
        include_str!("../rules/structural.toml"),
    ] {
        rules.merge(text).unwrap();
    }
    assert_eq!(rules.len(), built_in.len());
    assert_eq!(rules.digest(), built_in.digest());
    Scanner::new(&rules, ScanOptions::default()).unwrap();
}

#[test]
fn a_rule_of_the_user_is_applied() {
    let mut rules = RuleSet::built_in();
    rules.merge(&text(&[])).unwrap();
    let scanner = Scanner::new(&rules, ScanOptions::default()).unwrap();
    let sample = rules.rule("acme-token").unwrap().mint(1).unwrap();
    let mut found = Vec::new();
    scanner.scan_bytes(&mut scanner.scratch(), b"a", &sample, |it| found.push(it));
    assert_eq!(found.len(), 1);
    assert_eq!(&*found[0].rule, "acme-token");
}

#[test]
fn slow_rules_are_refused() {
    check_refused(&[("anchors", "[]")], "without an anchor");
    check_refused(&[("anchors", "[\"ac\"]")], "an anchor has 2 bytes");
    check_refused(&[("regex", "'acme_[0-9a-z]+'")], "no longest match");
    check_refused(&[("regex", "'acme_[0-9a-z]{4000}'")], "matches 4005 bytes");
    check_refused(
        &[(
            "regex",
            "'acme_(?:[acegikmoq]{1,2}|[0-9bdfhjlnprtvxz]{1,2}|[02468ACEGIKMOQSUWY]{1,2}){1,900}'",
        )],
        "bytes of states",
    );
    check_refused(&[("regex", "'other_[0-9a-z]{19}'")], "does not begin with its anchor");
    check_refused(&[("max_len", "100000")], "max_len is 100000");
    check_refused(&[("before", "5000")], "before is 5000");
    check_refused(
        &[
            ("anchors", "[\"the\"]"),
            ("before", "2000"),
            ("max_len", "1600"),
            ("regex", "'[a-z ]{0,1500}the [a-z]{3}'"),
        ],
        "bytes per byte of ordinary text",
    );
    check_refused(
        &[("anchors", "[\"    \"]"), ("search", "\"near\"")],
        "bytes per byte of ordinary text",
    );
}

#[test]
fn a_text_full_of_anchors_is_searched_within_a_budget() {
    // Rare in ordinary text, so the rule is accepted; this text is made of its anchor.
    let rule = text(&[
        ("anchors", "[\"qqz\"]"),
        ("before", "2000"),
        ("max_len", "1600"),
        ("regex", "'[a-z ]{1,1500}qqz[0-9]{8}'"),
    ]);
    let scanner = compile(&rule).unwrap();
    let bytes = b"qqz ".repeat(75_000);
    let reasons = |chunk_len: usize| {
        let mut options = ScanOptions::default();
        options.chunk_len = chunk_len;
        let mut rules = RuleSet::empty();
        rules.merge(&rule).unwrap();
        let scanner = Scanner::new(&rules, options).unwrap();
        let report = scanner.scan_reader(&mut scanner.scratch(), b"a", &*bytes, drop).unwrap();
        report.unread.iter().map(|it| it.reason.name()).collect::<Vec<_>>()
    };
    assert_eq!(reasons(1 << 20), ["match-budget"]);
    assert_eq!(reasons(1 << 12), ["match-budget"]);
    // A text with few of them is searched as a whole.
    let few = b"qqz some other words 1234567 ".repeat(3);
    let report = scanner.scan_bytes(&mut scanner.scratch(), b"a", &few, drop);
    assert!(report.unread.is_empty());
}

#[test]
fn wrong_rules_are_refused() {
    check_refused(&[("id", "\"Acme\"")], "the id needs lower-case");
    check_refused(&[("anchors", "[\"acmé\"]")], "not ASCII");
    check_refused(&[("regex", "'acme_['")], "cannot be read");
    check_refused(&[("regex", "'acme_([0-9]{20})'")], "not called `secret`");
    check_refused(&[("regex", "'(?:acme_)?'")], "shortest match is empty");
    check_refused(&[("max_len", "10")], "exceeds max_len");
    check_refused(&[("validator", "\"magic\"")], "no validator `magic`");
    check_refused(&[("mint", "\"magic\"")], "no mint recipe `magic`");
    check_refused(&[("entropy", "9.0")], "between 0 and 8");
    check_refused(&[("sample", "\"none\"")], "needs `{}` once");
    check_refused(&[("until", "[\"\"]")], "is empty");
    check_refused(&[("tail", "[\"\"]")], "is empty");
    check_refused(&[("tail", "[\"[base58]\"]")], "no alphabet `base58`");
    check_refused(&[("tail", "[\"x\"]"), ("until", "[\"x\"]")], "use one of them");
}

#[test]
fn too_many_anchors_are_refused_before_the_automaton_is_built() {
    let anchors: Vec<String> = (0..4_000).map(|number| format!("\"{number:048}\"")).collect();
    let anchors = format!("[{}]", anchors.join(","));
    let too_many = text(&[("anchors", &anchors), ("regex", "'[0-9]{48}'"), ("max_len", "48")]);
    let error = compile(&too_many).err().unwrap();
    assert!(matches!(error, RuleError::Literals { len, max } if len > max), "{error}");
    let text = error.to_string();
    assert!(text.ends_with("bytes in all encodings, at most 1048576 allowed"), "{text}");
    // All built-in rules have a small part of it.
    Scanner::new(&RuleSet::built_in(), ScanOptions::default()).unwrap();
}

#[test]
fn broken_texts_name_line_and_column() {
    let broken = compile("version = 1\n[[rule]]\nid = \n").err().unwrap();
    assert!(matches!(broken, RuleError::Syntax { line: 3, .. }), "{broken}");
    let unknown = compile(&text(&[("colour", "1")])).err().unwrap();
    assert!(matches!(unknown, RuleError::Syntax { line: 9, column: 1, .. }), "{unknown}");
    let version = compile("version = 2\n").err().unwrap();
    assert_eq!(version, RuleError::Version { presented: 2, expected: 1 });
}

#[test]
fn a_rejected_text_leaves_the_set_as_it_was() {
    let mut rules = RuleSet::built_in();
    let digest = rules.digest();
    let twice = format!("{}{}", text(&[]), text(&[]).replace("version = 1\n", ""));
    let missing = "version = 1\n[[disable]]\nid = \"nothing\"\nreason = \"test\"\n";
    let unexplained = "version = 1\n[[disable]]\nid = \"jwt\"\nreason = \" \"\n";
    for (text, reason) in
        [(&*twice, "twice"), (missing, "does not exist"), (unexplained, "without a reason")]
    {
        assert!(rules.merge(text).unwrap_err().to_string().contains(reason));
        assert_eq!(rules.digest(), digest);
    }
}

#[test]
fn every_change_of_a_rule_changes_the_digest() {
    let hash = |text: &str| {
        let mut rules = RuleSet::built_in();
        rules.merge(text).unwrap();
        rules.digest()
    };
    let mut hashes = vec![RuleSet::built_in().digest()];
    hashes.push(hash("version = 1\n[[disable]]\nid = \"jwt\"\nreason = \"test\"\n"));
    hashes.push(hash(&text(&[])));
    for (key, value) in [
        ("id", "\"acme-key\""),
        ("anchors", "[\"acme\"]"),
        ("words", "[\"acme\"]"),
        ("regex", "'acme_[0-9a-z]{21}'"),
        ("max_len", "26"),
        ("before", "1"),
        ("search", "\"near\""),
        ("left", "\"none\""),
        ("right", "\"none\""),
        ("validator", "\"base32\""),
        ("confidence", "\"low\""),
        ("entropy", "3.0"),
        ("until", "[\"end\"]"),
        ("tail", "[\"[base64]\"]"),
        ("nearby", "[\"acme\"]"),
        ("generic", "true"),
        ("rank", "1"),
        ("files", "[\"*.x\"]"),
        ("decode", "true"),
    ] {
        hashes.push(hash(&text(&[(key, value)])));
    }
    let count = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
    // Titles and samples find nothing.
    assert_eq!(hash(&text(&[("name", "\"Other\"")])), hash(&text(&[])));
}

#[test]
fn every_option_but_the_chunk_changes_the_policy() {
    let rules = RuleSet::built_in();
    let hash = |change: fn(&mut ScanOptions)| {
        let mut options = ScanOptions::default();
        change(&mut options);
        Scanner::new(&rules, options).unwrap().policy_hash(IdHashMode::KeyedV1)
    };
    let mut hashes = vec![
        hash(|_| {}),
        hash(|it| it.structured_only = true),
        hash(|it| it.binaries = true),
        hash(|it| it.archives = None),
        hash(|it| it.archives.as_mut().unwrap().depth = 1),
        hash(|it| it.archives.as_mut().unwrap().entries = 1),
        hash(|it| it.archives.as_mut().unwrap().entry_bytes = 1),
        hash(|it| it.archives.as_mut().unwrap().total_bytes = 1),
        hash(|it| it.archives.as_mut().unwrap().ratio = 1),
    ];
    assert_eq!(hash(|it| it.chunk_len = 1), hashes[0]);
    let count = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), count);
}

#[test]
fn samples_depend_on_the_seed_alone() {
    for rule in RuleSet::built_in().iter() {
        assert_eq!(rule.mint(4).unwrap(), rule.mint(4).unwrap());
        assert_ne!(rule.mint(4).unwrap(), rule.mint(5).unwrap(), "{}", rule.id);
    }
}

#[test]
fn scratch_of_one_scanner_fits_another() {
    let rules = RuleSet::built_in();
    let mut other_rules = RuleSet::empty();
    other_rules.merge(&text(&[])).unwrap();
    let scanner = Scanner::new(&rules, ScanOptions::default()).unwrap();
    let other = Scanner::new(&other_rules, ScanOptions::default()).unwrap();
    let sample = rules.rule("npm-token").unwrap().mint(1).unwrap();
    let acme = other_rules.rule("acme-token").unwrap().mint(1).unwrap();
    let mut scratch = scanner.scratch();
    for _ in 0..2 {
        assert_eq!(scanner.scan_bytes(&mut scratch, b"a", &sample, drop).findings, 1);
        assert_eq!(other.scan_bytes(&mut scratch, b"a", &acme, drop).findings, 1);
    }
}

#[test]
fn a_scanner_is_shared_and_scratch_moves_between_threads() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    fn is_movable<T: Send>(_: &T) {}
    let scanner = compile(&text(&[])).unwrap();
    is_shared(&scanner);
    is_movable(&scanner.scratch());
}
