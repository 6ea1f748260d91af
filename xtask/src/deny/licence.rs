//! Licence expressions (SPDX): `MIT OR Apache-2.0`, `(MIT OR ISC) AND Zlib`.
//!
//! `AND` binds tighter than `OR`; `A/B` is an old form of `A OR B`. A term `A WITH B` is one
//! licence, allowed only under that whole name.

/// Returns the licences by which `text` is granted, or `None` if those that are allowed do not
/// grant it or it cannot be parsed.
pub(super) fn granted(text: &str, is_allowed: &impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, is_allowed };
    let result = parser.any()?;
    // A word that is left over means that the text was not understood.
    if parser.words.is_empty() { result.filter(|ids| !ids.is_empty()) } else { None }
}

/// The allowed licences of a part: the outer `None` is a syntax error, the inner one a refusal.
type Parsed = Option<Option<Vec<String>>>;

struct Parser<'a, F> {
    words: &'a [&'a str],
    is_allowed: &'a F,
}

impl<F: Fn(&str) -> bool> Parser<'_, F> {
    /// Parses alternatives. All that are allowed are returned, because each of them is used.
    fn any(&mut self) -> Parsed {
        let mut result = self.all()?;
        while self.skip("OR") {
            result = match (result, self.all()?) {
                (Some(one), Some(other)) => Some([one, other].concat()),
                (one, other) => one.or(other),
            };
        }
        Some(result)
    }

    fn all(&mut self) -> Parsed {
        let mut result = self.term()?;
        while self.skip("AND") {
            let other = self.term()?;
            result = result.zip(other).map(|(one, other)| [one, other].concat());
        }
        Some(result)
    }

    fn term(&mut self) -> Parsed {
        if self.skip("(") {
            let inner = self.any()?;
            return self.skip(")").then_some(inner);
        }
        let (first, rest) = self.words.split_first()?;
        if ["OR", "AND", "WITH", ")"].contains(first) {
            return None;
        }
        self.words = rest;
        let mut id = (*first).to_owned();
        if self.skip("WITH") {
            let (exception, rest) = self.words.split_first()?;
            id = format!("{id} WITH {exception}");
            self.words = rest;
        }
        Some((self.is_allowed)(&id).then(|| vec![id]))
    }

    fn skip(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        self.words = &self.words[usize::from(is_next)..];
        is_next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Option<String> {
        let allowed = ["MIT", "ISC", "Zlib"];
        granted(text, &|id: &str| allowed.contains(&id)).map(|ids| ids.join(" "))
    }

    #[test]
    fn one_allowed_alternative_is_enough() {
        assert_eq!(ids("MIT").as_deref(), Some("MIT"));
        assert_eq!(ids("GPL-3.0 OR MIT").as_deref(), Some("MIT"));
        assert_eq!(ids("MIT/Apache-2.0").as_deref(), Some("MIT"));
        assert_eq!(ids("MIT OR ISC").as_deref(), Some("MIT ISC"));
        assert_eq!(ids("GPL-3.0"), None);
    }

    #[test]
    fn every_part_of_a_conjunction_must_be_allowed() {
        assert_eq!(ids("MIT AND ISC").as_deref(), Some("MIT ISC"));
        assert_eq!(ids("MIT AND GPL-3.0"), None);
        // `AND` binds tighter.
        assert_eq!(ids("Zlib OR MIT AND GPL-3.0").as_deref(), Some("Zlib"));
        assert_eq!(ids("(Zlib OR MIT) AND GPL-3.0"), None);
        assert_eq!(ids("(GPL-3.0 OR MIT) AND ISC").as_deref(), Some("MIT ISC"));
    }

    #[test]
    fn an_exception_makes_another_licence() {
        assert_eq!(ids("MIT WITH LLVM-exception"), None);
        assert_eq!(ids("Apache-2.0 WITH LLVM-exception OR MIT").as_deref(), Some("MIT"));
    }

    #[test]
    fn text_that_is_no_expression_is_refused() {
        for text in ["", "(MIT", "MIT)", "MIT ISC", "OR MIT", "MIT OR", "MIT AND", "MIT WITH"] {
            assert_eq!(ids(text), None, "{text:?}");
        }
    }
}
