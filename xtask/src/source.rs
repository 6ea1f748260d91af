//! A minimal Rust lexer for checks on source text.
//!
//! [`mask`] blanks comments and the contents of literals, so that a word in a sentence or a brace
//! in a string is never mistaken for code. [`tokens`] splits the rest into words and single
//! characters. Neither ever fails: text that is not Rust yields tokens that no check looks for, and
//! the compiler reports the errors.

/// A word (letters, digits, underscores) or one other character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    /// Counted from one.
    pub(crate) line: usize,
}

impl Token<'_> {
    pub(crate) fn is_word(&self) -> bool {
        self.text.chars().next().is_some_and(is_word_char)
    }
}

/// Returns the text with comments and the contents of literals replaced by spaces. Line breaks and
/// columns are preserved, and so are the quotes of strings.
pub(crate) fn mask(text: &str) -> String {
    Masker::new(text, false).run()
}

/// Returns the text with comments replaced by spaces; literals are kept.
pub(crate) fn without_comments(text: &str) -> String {
    Masker::new(text, true).run()
}

/// Splits masked text into tokens.
pub(crate) fn tokens(masked: &str) -> Vec<Token<'_>> {
    let lines = masked.lines().zip(1..);
    lines.flat_map(|(text, line)| line_tokens(text, line)).collect()
}

/// Returns the tokens of one line. No token spans two lines, since comments and strings are
/// blanked.
fn line_tokens(text: &str, line: usize) -> impl Iterator<Item = Token<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let len = if is_word_char(first) {
            rest.find(|c| !is_word_char(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (token, tail) = rest.split_at(len);
        rest = tail;
        Some(Token { text: token, line })
    })
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Copies text with parts blanked. `out` always has one character for each one before `at`.
struct Masker {
    text: Vec<char>,
    /// Index of the next character to copy or blank.
    at: usize,
    out: String,
    keeps_literals: bool,
}

impl Masker {
    fn new(text: &str, keeps_literals: bool) -> Self {
        Self { text: text.chars().collect(), at: 0, out: String::new(), keeps_literals }
    }

    fn run(mut self) -> String {
        while let Some(first) = self.peek(0) {
            match (first, self.peek(1)) {
                ('/', Some('/')) => self.line_comment(),
                ('/', Some('*')) => self.block_comment(),
                ('"', _) => self.string(),
                ('\'', _) => self.quote(),
                (c, _) if is_word_char(c) => self.word(),
                _ => self.keep(1),
            }
        }
        self.out
    }

    /// Returns the character `ahead` places after the current one.
    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn keep(&mut self, count: usize) {
        let end = (self.at + count).min(self.text.len());
        self.out.extend(&self.text[self.at..end]);
        self.at = end;
    }

    /// Replaces characters by spaces; line breaks are kept, so that line numbers do not change.
    fn blank(&mut self, count: usize) {
        let end = (self.at + count).min(self.text.len());
        let blanks = self.text[self.at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' });
        self.out.extend(blanks);
        self.at = end;
    }

    /// Blanks or keeps characters of a literal.
    fn literal(&mut self, count: usize) {
        if self.keeps_literals { self.keep(count) } else { self.blank(count) }
    }

    /// Blanks a line comment. Documentation too: it is prose, and its examples are not
    /// declarations.
    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.blank(1);
        }
    }

    /// Blanks a block comment. Block comments nest in Rust.
    fn block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.text.len() {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => depth += 1,
                (Some('*'), Some('/')) => depth -= 1,
                _ => {
                    self.blank(1);
                    continue;
                }
            }
            self.blank(2);
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        // The quotes are kept, so that a line with a string is still recognisable.
        self.keep(1);
        while let Some(c) = self.peek(0) {
            match c {
                '"' => return self.keep(1),
                '\\' => self.literal(2),
                _ => self.literal(1),
            }
        }
    }

    /// Blanks a character literal, or copies the start of a lifetime.
    fn quote(&mut self) {
        // `'a'` closes after one character; a lifetime never does, and an escape may be longer.
        if self.peek(1) == Some('\\') {
            self.literal(3);
            while self.peek(0).is_some_and(|c| c != '\'') {
                self.literal(1);
            }
            self.literal(1);
        } else if self.peek(2) == Some('\'') {
            self.literal(3);
        } else {
            self.keep(1);
        }
    }

    /// Copies a word; if it is the prefix of a raw string, blanks that string too.
    fn word(&mut self) {
        let start = self.at;
        while self.peek(0).is_some_and(is_word_char) {
            self.keep(1);
        }
        let is_prefix = matches!(self.text[start..self.at], ['r'] | ['b' | 'c', 'r']);
        // `r#type` has hashes as well, but no quote after them.
        let hashes = (0..).take_while(|&i| self.peek(i) == Some('#')).count();
        if is_prefix && self.peek(hashes) == Some('"') {
            self.raw_string(hashes);
        }
    }

    fn raw_string(&mut self, hashes: usize) {
        self.literal(hashes);
        self.keep(1);
        while self.at < self.text.len() {
            let is_end = self.peek(0) == Some('"')
                && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            if is_end {
                self.keep(1);
                return self.literal(hashes);
            }
            self.literal(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the words that remain after masking.
    fn words(text: &str) -> Vec<String> {
        let masked = mask(text);
        assert_eq!(masked.chars().count(), text.chars().count(), "columns moved in {text:?}");
        let tokens = tokens(&masked);
        tokens.iter().filter(|token| token.is_word()).map(|token| token.text.to_owned()).collect()
    }

    #[test]
    fn comments_are_blanked() {
        assert_eq!(words("a // b\nc"), ["a", "c"]);
        assert_eq!(words("/// doc\nfn"), ["fn"]);
        assert_eq!(words("a /* b /* c */ d */ e"), ["a", "e"]);
        assert_eq!(words("a /* never closed"), ["a"]);
    }

    #[test]
    fn literals_are_blanked() {
        assert_eq!(words(r#"a "b \" c" d"#), ["a", "d"]);
        assert_eq!(words(r###"a r#"b " c"# d"###), ["a", "r", "d"]);
        assert_eq!(words(r##"a br"b \" d"##), ["a", "br", "d"]);
        assert_eq!(words("a 'b' '\\'' '\\u{1F600}' c"), ["a", "c"]);
        assert_eq!(words("a \"never closed"), ["a"]);
    }

    #[test]
    fn literals_are_kept_if_only_comments_are_removed() {
        let text = without_comments("a(\"// b\", 'c', r#\"/* \"d\" */\"#); // e");
        assert_eq!(text.trim_end(), "a(\"// b\", 'c', r#\"/* \"d\" */\"#);");
    }

    #[test]
    fn lifetimes_and_raw_identifiers_are_kept() {
        assert_eq!(words("&'a str"), ["a", "str"]);
        assert_eq!(words("r#type"), ["r", "type"]);
    }

    #[test]
    fn a_comment_mark_in_a_string_opens_no_comment() {
        assert_eq!(words("\"https://x\" a"), ["a"]);
        assert_eq!(words("\"/*\" a"), ["a"]);
    }

    #[test]
    fn lines_are_counted_through_literals() {
        let masked = mask("\"one\ntwo\"\nx");
        let last = *tokens(&masked).last().unwrap();
        assert_eq!(last, Token { text: "x", line: 3 });
    }
}
