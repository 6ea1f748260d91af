//! Tests of [`super`]: the changes of small sources, and the text of their copies.

use super::*;
use crate::rewrite::rewrite;

/// Returns the changes of a body of a function that returns nothing.
fn changes(body: &str) -> Vec<String> {
    let text = format!("fn f() {{ {body} }}");
    let all = mutants("a.rs", &text).unwrap();
    let changes = all.iter().map(|mutant| mutant.change.clone());
    changes.filter(|change| !change.starts_with("the body")).collect()
}

#[test]
fn places_have_their_changes() {
    for (body, expected) in [
        ("let x = a < b;", &["`a < b`: `<` becomes `<=`", "`a < b`: `<` becomes `>`"][..]),
        ("let x = a + b;", &["`a + b`: `+` becomes `-`"]),
        ("let x = !a;", &["`!a` loses its `!`"]),
        ("if a { }", &["`a` becomes true", "`a` becomes false"]),
        ("if let A = b && c { }", &["`let A = b && c` becomes false", "`c` becomes true"]),
        ("while a { }", &["`a` becomes false"]),
        ("match a { b if c => d, e => f }", &["`c` becomes true", "`c` becomes false"]),
        ("a.b()?;", &["`a.b()?` is left out"]),
        ("a = b;", &["`a = b` is left out"]),
        ("a(); a();", &["`a()` is left out", "`a()` is left out (number 2)"]),
        ("assert!(a < b); let x = [0; 1 + 2]; const X: u8 = 1 + 2;", &[]),
    ] {
        assert_eq!(changes(body), expected, "{body}");
    }
}

#[test]
fn tests_and_debug_have_no_mutants() {
    for text in [
        "#[cfg(test)] mod tests { fn f() { g(); } }",
        "#[test] fn f() { g(); }",
        "impl fmt::Debug for A { fn fmt(&self) -> fmt::Result { g() } }",
        "const A: bool = 1 < 2;",
    ] {
        assert!(mutants("a.rs", text).unwrap().is_empty(), "{text}");
    }
}

#[test]
fn nested_mutants_repeat_only_original_text() {
    let text = "const fn f() -> bool { a == b && c }";
    let all = mutants("a.rs", text).unwrap();
    let wanted: Vec<(u32, &Mutant)> =
        (1..).zip(&all).filter(|(_, it)| !it.change.starts_with("the body")).collect();
    let removed = std::iter::once(0.."const ".len()).collect::<Vec<_>>();
    let written = rewrite(text, &removed, &wanted);
    let switch = |number: u32| format!("crate::mutation_switch::on({number})");
    let expected = format!(
        "fn f() -> bool {{ (if {} {{ (a == b) || (c) }} else {{ \
         (if {} {{ (a) != (b) }} else {{ a == b }}) && c }}) }}",
        switch(3),
        switch(4),
    );
    assert_eq!(written.text, expected);
    // Each piece is text of its mutant.
    for piece in written.pieces {
        let text = &written.text[piece.range];
        assert!(text == " })" || text.contains(&switch(piece.mutant)), "{text}");
    }
}
