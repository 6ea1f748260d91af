//! The text of a script: blocks of commands and their output.

use thiserror::Error;

/// Separates the commands of a block from their output.
const RULE: &str = "---";

/// A script that cannot be parsed or executed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// Line number, from one.
    pub line: usize,
    /// Description of the error.
    pub message: String,
}

/// Commands with their output.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block<'t> {
    /// Number of the first line.
    pub(super) first_line: usize,
    /// Comments, empty lines and commands, unchanged.
    pub(super) head: Vec<&'t str>,
    /// Expected output.
    pub(super) expected: Vec<&'t str>,
}

impl<'t> Block<'t> {
    /// Returns the commands with their line numbers.
    pub(super) fn instructions(&self) -> impl Iterator<Item = (usize, &'t str)> {
        let numbered = self.head.iter().enumerate();
        let numbered = numbered.map(|(index, line)| (self.first_line + index, line.trim()));
        numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    }

    /// Appends the block to `text`, with `output` as its output.
    pub(super) fn write(&self, output: &[String], text: &mut String) {
        for line in &self.head {
            text.push_str(line);
            text.push('\n');
        }
        text.push_str(RULE);
        text.push('\n');
        for line in output {
            text.push_str(line);
            text.push('\n');
        }
    }
}

/// Splits a script into its blocks.
pub(super) fn blocks(text: &str) -> Result<Vec<Block<'_>>, ScriptError> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((first, _)) = lines.peek().copied() {
        let head: Vec<&str> =
            std::iter::from_fn(|| lines.next_if(|(_, line)| *line != RULE)).map(at_end).collect();
        if lines.next().is_none() {
            let message = format!("commands without a `{RULE}` below them");
            return Err(ScriptError { line: first + 1, message });
        }
        let output = std::iter::from_fn(|| lines.next_if(|(_, line)| !line.is_empty()));
        let expected = output.map(at_end).collect();
        // The empty line between two blocks belongs to neither.
        lines.next_if(|(_, line)| line.is_empty());
        blocks.push(Block { first_line: first + 1, head, expected });
    }
    Ok(blocks)
}

fn at_end((_, line): (usize, &str)) -> &str {
    line.trim_end()
}
