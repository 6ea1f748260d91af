//! Tests of [`super`].

use super::*;

fn made(commit: &str) -> Made {
    let words = ["--save".to_owned()];
    Made { date: "2026-11-15".to_owned(), ..Made::of("mutants", &words, commit) }
}

#[test]
fn only_the_text_between_its_marks_is_replaced() {
    let page =
        "a\n<!-- mutants: begin -->\nold\n<!-- mutants: end -->\n<!-- fuzz: begin -->\nkept\n";
    let new = MUTANTS.replaced(page, "new").unwrap();
    assert!(
        new.starts_with("a\n<!-- mutants: begin -->\n\nnew\n\n<!-- mutants: end -->\n"),
        "{new}"
    );
    assert!(new.ends_with("<!-- fuzz: begin -->\nkept\n"));
    assert_eq!(MUTANTS.find(&new), Some("\n\nnew\n\n"));
    assert_eq!(MUTANTS.replaced(&new, "new").as_ref(), Some(&new));
    // Its end is missing, or all of it.
    assert_eq!(FUZZ.replaced(page, "new"), None);
    assert_eq!(MAKESPAN.replaced(page, "new"), None);
}

#[test]
fn the_line_names_command_date_and_commit() {
    let line = made("0123456789ab").line(MUTANTS);
    assert_eq!(line, "Made by `cargo xtask mutants --save`, 2026-11-15, commit 0123456789ab.");
    let line = made("0123456789ab-changed").remarking("Unoptimised build.").line(MUTANTS);
    assert!(line.ends_with(", commit 0123456789ab with changes. Unoptimised build."), "{line}");
}

#[test]
fn the_origin_of_a_line_is_read_back() {
    let sources: Vec<u64> = (0..figures::MAKERS.len()).map(|place| 7 << place).collect();
    let made = Made { sources, ..made("0123456789ab-changed") };
    for block in [MUTANTS, FUZZ, NIGHTLY] {
        let line = made.line(block);
        let expected = made.sources_of(block);
        assert!(expected.is_some(), "{block:?}");
        let read = origin(&line).unwrap();
        assert_eq!((read.commit, read.sources), ("0123456789ab", expected), "{line}");
    }
    let older = "| 1 |\n\nMade by `cargo xtask x`, 2026-11-15, commit 0123abc. Slow.";
    assert_eq!(origin(older), Some(Origin { commit: "0123abc", sources: None }));
    assert_eq!(origin("Not run yet."), None);
}

#[test]
fn written_lines_pass_the_check() {
    for commit in ["0123456789ab", "0123456789ab-changed"] {
        let text = format!("| 1 |\n\n{}", made(commit).remarking("On two cores.").line(MUTANTS));
        let page =
            MUTANTS.replaced("<!-- mutants: begin --><!-- mutants: end -->\n", &text).unwrap();
        let [block] = &found(&page)[..] else { panic!("{page}") };
        assert_eq!((block.name, block.line, block.problem), ("mutants", 1, None));
    }
}

#[test]
fn a_block_without_its_origin_is_a_problem() {
    let problem = |body: &str| {
        let page = format!("<!-- mutants: begin -->\n{body}\n<!-- mutants: end -->\n");
        found(&page)[0].problem
    };
    assert_eq!(problem("Not run yet."), None);
    assert_eq!(problem("Made by `cargo bench`, 2026-11-15, commit 0123abc (see below)."), None);
    let bad = [
        "",
        "| 1 |",
        "2026-11-15, commit 0123456789ab.",
        "Made by `cargo xtask mutants`, commit 0123456789ab.",
        "Made by `cargo xtask mutants`, 2026-11-15.",
        "Made by `cargo xtask mutants`, yesterday, commit 0123456789ab.",
        "Made by `cargo xtask mutants`, 2026-11-15, commit unknown.",
        "Made by `cargo xtask mutants`, 2026-11-15, commit 0123.",
        "Made by `cargo xtask mutants`, 2026-11-15, commit 0123456xyz.",
    ];
    for body in bad {
        assert!(problem(body).is_some(), "{body:?}");
    }
    assert_eq!(
        found("<!-- mutants: begin -->\nNot run yet.\n")[0].problem,
        Some("has no end mark")
    );
}

#[test]
fn a_section_ends_where_the_next_starts() {
    let output = "chunk 1\n## Figures\n\n| a |\n\n## Faults\n| b |\n";
    assert_eq!(section(output, "Figures").unwrap(), "| a |");
    assert_eq!(section(output, "Faults").unwrap(), "| b |");
    assert!(section(output, "Outcomes").is_err());
}

#[test]
fn every_block_is_listed_once() {
    for (index, block) in BLOCKS.iter().enumerate() {
        assert_eq!(BLOCKS.iter().position(|other| other == block), Some(index), "{block:?}");
    }
}

#[test]
fn paths_are_not_written_down() {
    let words = ["--progress", "/home/user/file", "--save"].map(str::to_owned);
    let line = Made::of("sim --campaign", &words, "0123456789ab").line(MUTANTS);
    assert!(line.contains("`cargo xtask sim --campaign --progress FILE --save`"), "{line}");
}
