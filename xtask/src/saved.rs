//! Figures between two marks in `docs/reliability.md`, written by the command that made them.

use std::fs;

use crate::failure::Failure;

const DOCUMENT: &str = "docs/reliability.md";

/// Puts `figures` between the marks of `name`.
pub(crate) fn save(name: &str, figures: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("{DOCUMENT} was not written"), error.to_string(), "look at it")
    };
    let text = fs::read_to_string(DOCUMENT).map_err(failed)?;
    let Some(text) = replaced(&text, name, figures) else {
        let why = format!("the marks around the figures of `{name}` are gone");
        return Err(Failure::new(format!("{DOCUMENT} was not written"), why, "put them back"));
    };
    fs::write(DOCUMENT, text).map_err(failed)
}

fn replaced(text: &str, name: &str, figures: &str) -> Option<String> {
    let [open, close] = [format!("<!-- figures: {name} -->"), format!("<!-- end: {name} -->")];
    let (before, rest) = text.split_once(&open)?;
    let (_, after) = rest.split_once(&close)?;
    Some(format!("{before}{open}\n\n{}\n\n{close}{after}", figures.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_its_marks_is_replaced() {
        let text = "a <!-- figures: x -->old<!-- end: x --> b <!-- figures: y -->y<!-- end: y -->";
        let new = replaced(text, "x", "new\n").unwrap();
        assert!(new.starts_with("a <!-- figures: x -->\n\nnew\n\n<!-- end: x --> b "));
        assert!(new.ends_with("<!-- figures: y -->y<!-- end: y -->"));
        assert_eq!(replaced(text, "z", "new"), None);
    }
}
