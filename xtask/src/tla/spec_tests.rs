use super::*;

const WORLD: &str = "\\* One worker\n\\* and one key.\nSPECIFICATION Spec\nCONSTANTS\n    A = 1\n\
    INVARIANTS\n    Tiling Limit\n    Replay\n";

const MODULE: &str = "Rule(a, b) == a\n\n\
    \\* MUTATION of Rule in tiny breaks Tiling\n\\* It forgets\n\\* the rule.\nBad(a, b) == b\n\n\
    \\* MUTATION of Rule in tiny breaks Limit without Tiling\n\\* No rule.\nWorse(a, b) ==\n    b\n\
    \\* MUTATION of Rule in tiny breaks Replay\n\\* None at all.\nWorst(a, b) == 1\n";

fn files(module: &str) -> [File; 2] {
    let path = |name: &str| format!("{DIRECTORY}/{name}");
    [File::new(path("M.tla"), module), File::new(path("tiny.cfg"), WORLD)]
}

fn parse(module: &str) -> Result<Specification, String> {
    Specification::parse(&files(module))
}

#[test]
fn configurations_and_mutations_are_read_from_their_files() {
    let specification = parse(MODULE).unwrap();
    let world = &specification.configurations[0];
    assert_eq!(world.purpose, "One worker and one key.");
    assert_eq!((world.module.as_str(), world.laws.len()), ("MC", 3));
    assert_eq!(specification.laws(), ["Tiling", "Limit", "Replay"]);
    let first = &specification.mutations[0];
    assert_eq!((first.name.as_str(), first.of.as_str()), ("Bad", "Rule"));
    assert_eq!(first.story, "It forgets the rule.");
    assert_eq!(specification.mutations[1].without.as_deref(), Some("Tiling"));
}

#[test]
fn a_mutation_is_the_configuration_with_one_definition_replaced() {
    let specification = parse(MODULE).unwrap();
    let text = specification.mutated(&specification.mutations[1]);
    assert!(text.ends_with("CONSTANT Rule <- Worse\n"), "{text}");
    assert!(!text.contains("Tiling") && text.contains("Limit"), "{text}");
    let text = specification.mutated(&specification.mutations[0]);
    assert!(text.contains("Tiling Limit"), "{text}");
}

#[test]
fn invalid_mutations_are_rejected() {
    let bad = [
        ("in tiny breaks Limit", "in huge breaks Limit"),
        ("breaks Limit without", "breaks Progress without"),
        ("of Rule in tiny breaks Limit", "of Ruler in tiny breaks Limit"),
        ("Worse(a, b)", "Worse(a)"),
        ("Worse(a, b)", "Bad(a, b)"),
        ("breaks Replay", "breaks"),
    ];
    for (from, to) in bad {
        assert!(parse(&MODULE.replace(from, to)).is_err(), "{from} -> {to}");
    }
}

#[test]
fn a_law_that_no_mutation_breaks_is_rejected() {
    let error = parse(&MODULE.replace("breaks Replay", "breaks Limit")).unwrap_err();
    assert_eq!(error, "no mutation breaks Replay");
}

#[test]
fn the_fingerprint_changes_with_the_code_and_not_with_comments() {
    let of = |text: &str| fingerprint([text].into_iter());
    assert_eq!(of("\\* one\nA == 1 \\* why\n(* two *)\n"), of("A  ==\n    1\n"));
    assert_ne!(of("A == 1"), of("A == 2"));
    assert_ne!(of("\\* MUTATION of A"), of("\\* MUTATION of B"));
}
