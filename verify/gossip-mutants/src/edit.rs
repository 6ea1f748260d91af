//! Edits of a file: some lines are replaced by others.

use std::fmt;
use std::ops::Range;

/// A replacement of lines in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The file, relative to the root of the workspace.
    pub file: &'static str,
    /// Where the edit is defined, for errors.
    pub place: String,
    find: Vec<&'static str>,
    replace: Vec<&'static str>,
}

/// An edit that does not fit its file.
#[derive(Debug, PartialEq, Eq)]
pub struct EditError {
    place: String,
    file: &'static str,
    why: String,
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} in {}", self.place, self.why, self.file)
    }
}

impl std::error::Error for EditError {}

impl Edit {
    /// An edit without lines yet.
    pub(crate) const fn new(file: &'static str, place: String) -> Self {
        Self { file, place, find: Vec::new(), replace: Vec::new() }
    }

    /// Adds a line that begins with a space, `-` or `+`.
    pub(crate) fn push(&mut self, line: &'static str) {
        let (sign, text) = line.split_at(1);
        if sign != "+" {
            self.find.push(text);
        }
        if sign != "-" {
            self.replace.push(text);
        }
    }

    /// Returns the names of the mutants that the new lines activate.
    pub fn active(&self) -> impl Iterator<Item = &'static str> {
        let calls = self.replace.iter().flat_map(|line| line.split("is_active(\"").skip(1));
        calls.filter_map(|rest| rest.split_once('"').map(|(name, _)| name))
    }

    /// Returns the lines of `text` that are replaced.
    fn lines_in(&self, text: &[&str]) -> Result<Range<usize>, EditError> {
        let len = self.find.len();
        let refuse = |why: String| EditError { place: self.place.clone(), file: self.file, why };
        if len == 0 {
            return Err(refuse("no line to find".to_owned()));
        }
        let places = text.windows(len).enumerate().filter(|(_, lines)| *lines == self.find);
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        match places[..] {
            [place] => Ok(place..place + len),
            [] => Err(refuse("its lines do not occur".to_owned())),
            _ => Err(refuse(format!("its lines occur {} times", places.len()))),
        }
    }
}

/// Applies edits to the text of their file.
///
/// # Errors
///
/// Every edit whose lines do not occur exactly once, and every edit that overlaps another.
pub fn apply(edits: &[&Edit], text: &str) -> Result<String, Vec<EditError>> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut ranges, mut errors) = (Vec::new(), Vec::new());
    for edit in edits {
        match edit.lines_in(&lines) {
            Ok(range) => ranges.push((range, *edit)),
            Err(error) => errors.push(error),
        }
    }
    ranges.sort_by_key(|(range, _)| (range.start, range.end));
    let overlaps = ranges.windows(2).filter(|pair| pair[1].0.start < pair[0].0.end);
    errors.extend(overlaps.map(|pair| {
        let why = format!("it overlaps {}", pair[0].1.place);
        EditError { place: pair[1].1.place.clone(), file: pair[1].1.file, why }
    }));
    if !errors.is_empty() {
        return Err(errors);
    }
    let (mut result, mut next) = (String::with_capacity(2 * text.len()), 0);
    let mut add = |lines: &[&str]| lines.iter().for_each(|line| result.extend([line, "\n"]));
    for (range, edit) in ranges {
        add(&lines[next..range.start]);
        add(&edit.replace);
        next = range.end;
    }
    add(&lines[next..]);
    Ok(result)
}
