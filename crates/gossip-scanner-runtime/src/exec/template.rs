//! A command line with places for items.
//!
//! | placeholder | becomes |
//! |---|---|
//! | `{}` | the item: a path as it was typed, a line, a row, a number |
//! | `{/}` | its base name |
//! | `{//}` | its directory |
//! | `{.}` | it without its extension |
//! | `{#}` | its number, if the source numbers its items |
//! | `{name}` | a column of its row, if the source has columns |

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use gossip_contracts::connector::ConnectorError;
use thiserror::Error;

use super::columns::{Column, Columns, Numbering};
use crate::connectors::Source;

/// Where the text of an item goes.
const PLACE: &[u8] = b"{}";

/// The names of the parts of an item that have a sign.
const SIGNS: [(&[u8], Place); 5] = [
    (PLACE, Place::Item),
    (b"{/}", Place::Base),
    (b"{//}", Place::Directory),
    (b"{.}", Place::Stem),
    (b"{#}", Place::Number),
];

/// Shells, which take a script behind an option with the letter `c`.
const SHELLS: [&str; 12] =
    ["sh", "ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "tcsh", "yash", "zsh"];

/// A part of an item that replaces a placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// `{}`: its text.
    Item,
    /// `{/}`: the text behind the last slash.
    Base,
    /// `{//}`: the text before the last slash; `.` without one.
    Directory,
    /// `{.}`: the text without the extension of its last part.
    Stem,
    /// `{#}`: its number in the source.
    Number,
    /// `{name}`: a column of its row.
    Column(Column),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Place(Place),
}

/// An argument: text with placeholders.
type Argument = Vec<Piece>;

/// A program and its arguments, in which placeholders are replaced by items.
///
/// An argument that is exactly one placeholder becomes one argument for each item. A longer one
/// with a placeholder takes the only item of a batch of one. Without any placeholder the items are
/// put behind the rest.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    program: OsString,
    arguments: Vec<Argument>,
    kind: Kind,
    numbering: Numbering,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Items are arguments of their own.
    Many,
    /// Some argument has an item inside, so there is one item at a time.
    One,
}

/// An item as placeholders need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemText<'a> {
    /// Its text.
    pub text: &'a [u8],
    /// Its number: [`Template::number_of`] its key.
    pub number: u64,
}

impl Template {
    /// Reads a command line for a source without columns and numbers.
    ///
    /// # Errors
    ///
    /// [`TemplateError`].
    pub fn parse(command: &[OsString]) -> Result<Self, TemplateError> {
        Self::parse_with(command, &Columns::None, Numbering::None)
    }

    /// Reads a command line for items of `source`. A source with columns is opened if a
    /// placeholder has the form of a column's name.
    ///
    /// # Errors
    ///
    /// [`TemplateError`].
    pub(crate) fn parse_for(command: &[OsString], source: &Source) -> Result<Self, TemplateError> {
        let bytes = || command.iter().skip(1).map(|word| word.as_bytes());
        let columns = match bytes().any(has_name) {
            true => Columns::of(source)?,
            false => Columns::None,
        };
        Self::parse_with(command, &columns, Numbering::of(source))
    }

    fn parse_with(
        command: &[OsString],
        columns: &Columns,
        numbering: Numbering,
    ) -> Result<Self, TemplateError> {
        let (program, arguments) = command.split_first().ok_or(TemplateError::Empty)?;
        if program.is_empty() {
            return Err(TemplateError::Empty);
        }
        let pieces = |text: &[u8]| pieces_of(text, columns);
        let is_filled = |text: &[u8]| pieces(text).is_ok_and(|pieces| has_place(&pieces));
        // Refused, because the text of an item would decide which program runs.
        if is_filled(program.as_bytes()) {
            return Err(TemplateError::PlaceInProgram);
        }
        let mut words: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
        if !words.iter().any(|word| is_filled(word)) {
            words.push(PLACE);
        }
        // After the place was appended: a script without one must not get an item as its code.
        check_script(program.as_bytes(), &words, &is_filled)?;
        let arguments =
            words.into_iter().map(pieces).collect::<Result<Vec<Argument>, TemplateError>>()?;
        let places = || arguments.iter().flatten();
        if numbering == Numbering::None && places().any(|it| *it == Piece::Place(Place::Number)) {
            return Err(TemplateError::NoNumbers);
        }
        let inside = |argument: &Argument| argument.len() > 1 && has_place(argument);
        let kind = if arguments.iter().any(inside) { Kind::One } else { Kind::Many };
        Ok(Self { program: program.clone(), arguments, kind, numbering })
    }

    /// Returns whether a process may get more than one item.
    #[must_use]
    pub(crate) fn takes_many(&self) -> bool {
        self.kind == Kind::Many
    }

    /// Returns the program.
    #[must_use]
    pub(crate) fn program(&self) -> &OsStr {
        &self.program
    }

    /// Returns the number of the item with this key; 0 if the source does not number its items.
    #[must_use]
    pub fn number_of(&self, key: &[u8]) -> u64 {
        self.numbering.number_of(key)
    }

    /// Returns the arguments for these items, of which there is one unless the template takes many.
    ///
    /// # Errors
    ///
    /// An item has no such column; the text says which.
    pub fn arguments(&self, items: &[ItemText<'_>]) -> Result<Vec<OsString>, String> {
        debug_assert!(items.len() == 1 || self.takes_many(), "a batch of one");
        let mut filled = Vec::with_capacity(self.arguments.len() + items.len());
        for argument in &self.arguments {
            match argument.as_slice() {
                [Piece::Place(place)] => {
                    for item in items {
                        filled.push(owned(&place.of(item)?));
                    }
                }
                pieces => filled.push(fill(pieces, items.first())?),
            }
        }
        Ok(filled)
    }
}

impl Place {
    fn of<'a>(&self, item: &ItemText<'a>) -> Result<Cow<'a, [u8]>, String> {
        let text = item.text;
        let slash = memchr::memrchr(b'/', text);
        let base = slash.map_or(0, |at| at + 1);
        Ok(match self {
            Self::Item => Cow::Borrowed(text),
            Self::Base => Cow::Borrowed(&text[base..]),
            // The directory of `/a` is `/`.
            Self::Directory => match slash {
                None => Cow::Borrowed(b"."),
                Some(0) => Cow::Borrowed(b"/"),
                Some(at) => Cow::Borrowed(&text[..at]),
            },
            // A name that begins with its only dot has no extension.
            Self::Stem => match memchr::memrchr(b'.', &text[base..]).filter(|at| *at > 0) {
                Some(at) => Cow::Borrowed(&text[..base + at]),
                None => Cow::Borrowed(text),
            },
            Self::Number => Cow::Owned(item.number.to_string().into_bytes()),
            Self::Column(column) => column.of(text)?,
        })
    }
}

// The program only: arguments may contain secrets.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template")
            .field("program", &self.program)
            .field("arguments", &self.arguments.len())
            .finish()
    }
}

/// A command line that cannot be run for keys. Each message says what to type instead.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateError {
    /// There is no program.
    #[error("no command given; put it after --, as in: -- wc -c {{}}")]
    Empty,
    /// A key as a program.
    #[error("{{}} cannot be the program itself; give a program, then {{}}")]
    PlaceInProgram,
    /// A key inside a script: its bytes would be read as code.
    #[error(
        "{{}} inside a shell script would let a name run as code; \
         use: sh -c '… \"$1\" …' sh {{}}"
    )]
    PlaceInScript,
    /// `{#}` for a source whose items have no stable number.
    #[error(
        "{{#}} needs rows or integers: the items of this source have no number that is the same \
         in every run"
    )]
    NoNumbers,
    /// A placeholder that is no column.
    #[error("no column `{name}`; the columns are: {known}")]
    NoColumn {
        /// The placeholder.
        name: String,
        /// The columns of the source.
        known: String,
    },
    /// The columns of the source cannot be read.
    #[error("the columns of the source cannot be read: {0}")]
    Columns(ConnectorError),
}

fn has_place(pieces: &[Piece]) -> bool {
    pieces.iter().any(|piece| matches!(piece, Piece::Place(_)))
}

/// Splits an argument into text and placeholders.
fn pieces_of(text: &[u8], columns: &Columns) -> Result<Argument, TemplateError> {
    let (mut pieces, mut plain, mut at) = (Vec::new(), 0, 0);
    while let Some(brace) = memchr::memchr(b'{', &text[at..]).map(|found| at + found) {
        let Some((place, len)) = place_at(text, brace, columns)? else {
            at = brace + 1;
            continue;
        };
        if brace > plain {
            pieces.push(Piece::Text(text[plain..brace].to_vec()));
        }
        pieces.push(Piece::Place(place));
        (plain, at) = (brace + len, brace + len);
    }
    if plain < text.len() || pieces.is_empty() {
        pieces.push(Piece::Text(text[plain..].to_vec()));
    }
    Ok(pieces)
}

/// Returns the placeholder that begins at an opening brace, and its length.
fn place_at(
    text: &[u8],
    brace: usize,
    columns: &Columns,
) -> Result<Option<(Place, usize)>, TemplateError> {
    let rest = &text[brace..];
    if let Some((sign, place)) = SIGNS.into_iter().find(|(sign, _)| rest.starts_with(sign)) {
        return Ok(Some((place, sign.len())));
    }
    match name_at(text, brace) {
        Some(name) => {
            Ok(columns.named(name)?.map(|column| (Place::Column(column), name.len() + 2)))
        }
        None => Ok(None),
    }
}

/// Returns the name in braces that begins at an opening brace; `${NAME}` is a shell's variable.
fn name_at(text: &[u8], brace: usize) -> Option<&[u8]> {
    if brace.checked_sub(1).is_some_and(|before| text[before] == b'$') {
        return None;
    }
    let rest = &text[brace + 1..];
    let name = &rest[..memchr::memchr(b'}', rest)?];
    let first = name.first()?;
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let begins = first.is_ascii_alphabetic() || *first == b'_';
    (begins && name.iter().all(is_name)).then_some(name)
}

fn has_name(text: &[u8]) -> bool {
    memchr::memchr_iter(b'{', text).any(|brace| name_at(text, brace).is_some())
}

/// Refuses a key where a shell would read it as code.
///
/// A shell counts at any position: the words before it (`env`, `nice`, `timeout 5`) run it. Only
/// words of the command line can be checked: a program that runs code of its own (`python -c`), or
/// hands a text to a shell of its own (`ssh`, `su -c`), is not known here.
fn check_script(
    program: &[u8],
    arguments: &[&[u8]],
    has_place: &dyn Fn(&[u8]) -> bool,
) -> Result<(), TemplateError> {
    let words: Vec<&[u8]> = std::iter::once(program).chain(arguments.iter().copied()).collect();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        if let Some(shell) = shell_name(word) {
            let options = ShellOptions::read(shell, &words[at..], has_place);
            if options.place || options.script.is_some_and(has_place) {
                return Err(TemplateError::PlaceInScript);
            }
            // After a script comes its `$0`, often the name of a shell.
            at += options.script.map_or(0, |_| options.words + 1);
        }
    }
    Ok(())
}

fn shell_name(word: &[u8]) -> Option<&'static str> {
    let name = Path::new(OsStr::from_bytes(word)).file_name()?;
    SHELLS.into_iter().find(|shell| name == *shell)
}

/// The words behind the name of a shell, up to its script.
struct ShellOptions<'a> {
    /// The words that were read, the script among them.
    words: usize,
    /// Returns whether a key is among them where it could name the script or be it.
    place: bool,
    /// Returns the script, if an option says that it is an argument and not a file.
    script: Option<&'a [u8]>,
}

impl<'a> ShellOptions<'a> {
    /// Reads options as shells do, and too much rather than too little: bundles of letters behind
    /// `-` or `+`, whose values are words of their own, up to the first word that is neither.
    fn read(shell: &str, words: &[&'a [u8]], has_place: &dyn Fn(&[u8]) -> bool) -> Self {
        let is_fish = shell == "fish";
        // For fish the script is the value of its option; for the others, what follows them all.
        let valued: &[u8] = if is_fish { b"cCdDfo" } else { b"oO" };
        let (mut read, mut owed, mut inside, mut value) = (0, 0, false, false);
        let (mut is_script, mut last_value) = (false, None);
        for word in words {
            // Shells turn options off with a plus, and some take values there too.
            let is_option = word.starts_with(b"-") || word.starts_with(b"+");
            if !is_option && owed == 0 {
                break;
            }
            read += 1;
            if !is_option {
                owed -= 1;
                value |= has_place(word);
                last_value = Some(*word);
                continue;
            }
            if matches!(*word, b"-" | b"--") {
                break;
            }
            inside |= has_place(word);
            is_script |= names_script(word);
            owed += values_of(word, valued);
        }
        let script = if is_fish { last_value } else { words.get(read).copied() };
        Self {
            words: read + usize::from(!is_fish),
            // A key among the values of options could be the script; refused on suspicion.
            place: inside || (is_script && value),
            script: script.filter(|_| is_script),
        }
    }
}

/// Returns whether an option says that a script comes: any bundle with a `c`, or fish's long ones.
fn names_script(option: &[u8]) -> bool {
    match option.strip_prefix(b"--") {
        Some(long) => long.starts_with(b"com") || long.starts_with(b"init-c"),
        None => option.iter().any(|letter| matches!(letter, b'c' | b'C')),
    }
}

/// Returns how many words behind an option belong to it.
fn values_of(option: &[u8], valued: &[u8]) -> usize {
    match option.strip_prefix(b"--") {
        Some(b"rcfile" | b"init-file" | b"command" | b"init-command") => 1,
        Some(_) => 0,
        None => option.iter().filter(|letter| valued.contains(letter)).count(),
    }
}

/// Returns a copy with room for the zero at its end: an argument of a process ends with one.
fn owned(key: &[u8]) -> OsString {
    let mut copy = Vec::with_capacity(key.len() + 1);
    copy.extend_from_slice(key);
    OsString::from_vec(copy)
}

fn fill(pieces: &[Piece], item: Option<&ItemText<'_>>) -> Result<OsString, String> {
    let mut filled = Vec::new();
    for piece in pieces {
        match (piece, item) {
            (Piece::Text(text), _) => filled.extend_from_slice(text),
            (Piece::Place(place), Some(item)) => filled.extend_from_slice(&place.of(item)?),
            (Piece::Place(_), None) => {}
        }
    }
    Ok(OsString::from_vec(filled))
}
