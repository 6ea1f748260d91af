//! The frame on a terminal: which lines are drawn, and the bytes that replace them.
//!
//! A frame lies below all other output, and the cursor rests in the first column below
//! it. Every change is one string of bytes: back to the first line of the frame, text to be printed
//! above it, and the new frame. Written at once and inside synchronized output (mode 2026), a
//! terminal shows either the old state or the new one.
//!
//! # Invariants
//! - Between two writes the cursor is visible, attributes are off and synchronized output has
//!   ended: a process that is killed leaves a usable terminal.
//! - The height does not shrink until the frame is erased, except with the terminal.

use std::fmt::Write as _;

use super::frame::Size;
use super::style::{Line, Style};

/// Begins synchronized output, and hides the cursor while it moves.
const BEGIN: &str = "\x1b[?2026h\x1b[?25l";

/// Shows the cursor and ends synchronized output.
const END: &str = "\x1b[?25h\x1b[?2026l";

/// Erases from the cursor to the end of the screen, and to the end of the line.
const ERASE_BELOW: &str = "\x1b[J";
const ERASE_REST: &str = "\x1b[K";

/// Turns attributes off.
const RESET: &str = "\x1b[0m";

/// A frame on a terminal.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    /// The lines that are drawn, with their width.
    drawn: Vec<(String, usize)>,
    /// The width of the terminal when they were drawn.
    columns: usize,
    /// The largest height so far.
    height: usize,
}

impl Canvas {
    /// Returns the bytes that print `text` above the frame and draw `frame`; `None` if nothing
    /// changes. `text` consists of whole lines.
    pub(super) fn draw(
        &mut self,
        text: &[u8],
        frame: &[Line],
        size: Size,
        style: Style,
    ) -> Option<Vec<u8>> {
        let mut lines: Vec<_> =
            frame.iter().map(|line| (line.render(style), line.width())).collect();
        if !lines.is_empty() {
            // It does not shrink, so that the text above does not jump with each job that ends.
            self.height = self.height.max(lines.len()).min(size.rows.saturating_sub(1));
            lines.resize(self.height.max(lines.len()), (String::new(), 0));
        }
        // A changed width rewraps the drawn lines, so they are written again.
        if text.is_empty() && lines == self.drawn && size.columns == self.columns {
            return None;
        }
        let mut bytes = BEGIN.to_owned();
        bytes.push_str(&self.back_to_top(size.columns));
        // Line by line, because terminals without synchronized output would show the empty space.
        let in_place = text.is_empty() && size.columns == self.columns;
        if !in_place {
            bytes.push_str(ERASE_BELOW);
        }
        let mut bytes = bytes.into_bytes();
        append_text(&mut bytes, text);
        for (line, _) in &lines {
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(if in_place { ERASE_REST.as_bytes() } else { b"" });
            // Both, because a program may have changed what a line feed does.
            bytes.extend_from_slice(b"\r\n");
        }
        if in_place {
            bytes.extend_from_slice(ERASE_BELOW.as_bytes());
        }
        bytes.extend_from_slice(END.as_bytes());
        (self.drawn, self.columns) = (lines, size.columns);
        Some(bytes)
    }

    /// Returns the bytes that print `text` above the frame as it is drawn.
    pub(super) fn print(&mut self, text: &[u8], columns: usize) -> Vec<u8> {
        if self.drawn.is_empty() {
            return text.to_vec();
        }
        let mut bytes = format!("{BEGIN}{}{ERASE_BELOW}", self.back_to_top(columns)).into_bytes();
        append_text(&mut bytes, text);
        for (line, _) in &self.drawn {
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        self.columns = columns;
        bytes.extend_from_slice(END.as_bytes());
        bytes
    }

    /// Returns the bytes that erase the frame and print `text` in its place.
    pub(super) fn erase(&mut self, text: &[u8], columns: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        if !self.drawn.is_empty() {
            bytes = format!("{}{ERASE_BELOW}", self.back_to_top(columns)).into_bytes();
        }
        *self = Self::default();
        append_text(&mut bytes, text);
        bytes
    }

    /// Leaves the frame where it is. The next one is drawn below the cursor, wherever it is:
    /// another program has written to the terminal.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns the sequence that moves the cursor from its place below the frame to the first line.
    fn back_to_top(&self, columns: usize) -> String {
        // A terminal that became narrower has wrapped the lines.
        let rows_of = |(_, width): &(String, usize)| width.div_ceil(columns.max(1)).max(1);
        let rows: usize = self.drawn.iter().map(rows_of).sum();
        let mut sequence = String::new();
        if rows > 0 {
            write!(sequence, "\r\x1b[{rows}A").expect("a string accepts every text");
        }
        sequence
    }
}

/// Appends whole lines, with attributes turned off after them if they may have set any.
fn append_text(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend_from_slice(text);
    if text.contains(&b'\x1b') {
        bytes.extend_from_slice(RESET.as_bytes());
    }
    if text.last().is_some_and(|last| *last != b'\n') {
        bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
#[path = "canvas_tests.rs"]
mod tests;
