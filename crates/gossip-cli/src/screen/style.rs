//! Colours, and the characters that a terminal can show.

use std::env;
use std::fmt::Write as _;

use clap::ValueEnum;

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What the output can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    pub(crate) is_colored: bool,
    /// Only ASCII: the locale is not UTF-8, or its fonts show blocks in two columns.
    pub(crate) is_ascii: bool,
}

impl Style {
    #[cfg(test)]
    pub(crate) const PLAIN: Self = Self { is_colored: false, is_ascii: false };

    /// Returns the style of an output.
    pub(crate) fn of(color: Color, is_terminal: bool) -> Self {
        let is_colored = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && !is_set("NO_COLOR") && has_cursor_control(),
        };
        // In the order of POSIX: the first that is set decides.
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(value).next();
        Self { is_colored, is_ascii: is_ascii(locale.as_deref().unwrap_or_default()) }
    }
}

/// Returns whether the terminal can move the cursor and has colours, as far as its name says so.
pub(crate) fn has_cursor_control() -> bool {
    value("TERM").is_some_and(|name| name != "dumb")
}

/// Returns whether a variable has a value.
fn is_set(name: &str) -> bool {
    value(name).is_some()
}

fn value(name: &str) -> Option<String> {
    env::var_os(name).filter(|value| !value.is_empty())?.into_string().ok()
}

/// Returns whether a locale cannot show blocks, each in one column.
fn is_ascii(locale: &str) -> bool {
    let lower = locale.to_ascii_lowercase();
    let is_utf8 = lower.contains("utf-8") || lower.contains("utf8");
    // Terminals of these languages show blocks in two columns, if they are set up so.
    let is_wide = ["zh", "ja", "ko"].iter().any(|language| lower.starts_with(language));
    !is_utf8 || is_wide
}

/// The colour of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Strong,
    Dim,
    Done,
    Failed,
    Warning,
    /// The colour of a worker, by its number.
    Worker(usize),
}

/// Colours of workers, from the 16 that follow the theme of a terminal. None is that of finished or
/// failed cells.
const WORKERS: [&str; 7] = ["36", "33", "35", "34", "96", "93", "95"];

impl Paint {
    /// Returns the parameters of the control sequence; `None` for the default.
    pub(crate) fn code(self) -> Option<&'static str> {
        Some(match self {
            Self::Plain => return None,
            Self::Strong => "1",
            Self::Dim => "90",
            Self::Done => "32",
            Self::Failed => "1;31",
            Self::Warning => "33",
            Self::Worker(number) => WORKERS[number % WORKERS.len()],
        })
    }
}

/// A line of pieces in different colours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line(Vec<(Paint, String)>);

impl Line {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn with(mut self, paint: Paint, text: impl Into<String>) -> Self {
        self.push(paint, text);
        self
    }

    pub(crate) fn push(&mut self, paint: Paint, text: impl Into<String>) {
        let text = text.into();
        match self.0.last_mut() {
            // One sequence for a row of equal cells.
            Some((last, before)) if *last == paint => before.push_str(&text),
            _ => self.0.push((paint, text)),
        }
    }

    /// Appends the pieces of another line.
    pub(crate) fn and(mut self, other: Self) -> Self {
        other.0.into_iter().for_each(|(paint, text)| self.push(paint, text));
        self
    }

    pub(crate) fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| super::text::width(text)).sum()
    }

    /// Shortens the line to so many columns.
    pub(crate) fn clipped(self, columns: usize) -> Self {
        let mut left = columns;
        let mut clipped = Self::new();
        for (paint, text) in self.0 {
            let text = super::text::clip(&text, left, "");
            // A clipped text is never wider than asked for.
            left -= super::text::width(&text);
            clipped.push(paint, text);
        }
        clipped
    }

    /// Returns the text with control sequences for its colours, reset at the end.
    pub(crate) fn render(&self, style: Style) -> String {
        let mut rendered = String::new();
        for (paint, text) in self.0.iter().filter(|(_, text)| !text.is_empty()) {
            match paint.code().filter(|_| style.is_colored) {
                Some(code) => {
                    let written = write!(rendered, "\x1b[{code}m{text}\x1b[0m");
                    written.expect("a string accepts every text");
                }
                None => rendered.push_str(text),
            }
        }
        rendered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_need_a_locale_that_shows_them() {
        for locale in ["", "C", "POSIX", "de_DE.ISO-8859-1", "ja_JP.UTF-8", "zh_CN.utf8"] {
            assert!(is_ascii(locale), "{locale}");
        }
        for locale in ["C.UTF-8", "en_US.UTF-8", "de_DE.utf8"] {
            assert!(!is_ascii(locale), "{locale}");
        }
    }

    #[test]
    fn neighbours_of_one_colour_share_a_sequence() {
        let line =
            Line::new().with(Paint::Done, "#").with(Paint::Done, "#").with(Paint::Plain, "a");
        let style = Style { is_colored: true, is_ascii: true };
        assert_eq!(line.render(style), "\x1b[32m##\x1b[0ma");
        assert_eq!(line.render(Style::PLAIN), "##a");
        assert_eq!(line.clipped(1).render(Style::PLAIN), "#");
    }
}
