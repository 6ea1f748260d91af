//! A command line with places for keys.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use thiserror::Error;

/// Where keys go.
const PLACE: &[u8] = b"{}";

/// Shells, which take a script behind an option with the letter `c`.
const SHELLS: [&str; 12] =
    ["sh", "ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "rbash", "tcsh", "yash", "zsh"];

/// A program and its arguments, in which `{}` is replaced by keys.
///
/// An argument that is exactly `{}` becomes one argument for each key. A longer one that contains
/// `{}` takes the only key of a batch of one. Without any `{}` the keys are put behind the rest.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    program: OsString,
    arguments: Vec<Vec<u8>>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Keys are arguments of their own.
    Many,
    /// Some argument has a key inside, so there is one key at a time.
    One,
}

impl Template {
    /// Reads a command line.
    ///
    /// # Errors
    ///
    /// [`TemplateError`].
    pub fn parse(command: &[OsString]) -> Result<Self, TemplateError> {
        let (program, arguments) = command.split_first().ok_or(TemplateError::Empty)?;
        if program.is_empty() {
            return Err(TemplateError::Empty);
        }
        // Refused, because the text of an item would decide which program runs.
        if has_place(program.as_bytes()) {
            return Err(TemplateError::PlaceInProgram);
        }
        let mut arguments: Vec<Vec<u8>> =
            arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
        if !arguments.iter().any(|argument| has_place(argument)) {
            arguments.push(PLACE.to_vec());
        }
        // After the place was appended: a script without one must not get a key as its code.
        check_script(program.as_bytes(), &arguments)?;
        let inside = |argument: &Vec<u8>| argument != PLACE && has_place(argument);
        let kind = if arguments.iter().any(inside) { Kind::One } else { Kind::Many };
        Ok(Self { program: program.clone(), arguments, kind })
    }

    /// Returns whether a process may get more than one key.
    #[must_use]
    pub(crate) fn takes_many(&self) -> bool {
        self.kind == Kind::Many
    }

    /// Returns the program.
    #[must_use]
    pub(crate) fn program(&self) -> &OsStr {
        &self.program
    }

    /// Returns the arguments for these keys, of which there is one unless the template takes many.
    pub fn arguments(&self, keys: &[&[u8]]) -> Vec<OsString> {
        debug_assert!(keys.len() == 1 || self.takes_many(), "a batch of one");
        let mut filled = Vec::with_capacity(self.arguments.len() + keys.len());
        for argument in &self.arguments {
            if argument == PLACE {
                filled.extend(keys.iter().copied().map(owned));
            } else {
                filled.push(fill(argument, keys.first().copied().unwrap_or_default()));
            }
        }
        filled
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
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
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
}

fn has_place(text: &[u8]) -> bool {
    memchr::memmem::find(text, PLACE).is_some()
}

/// Refuses a key where a shell would read it as code.
///
/// A shell counts at any position: the words before it (`env`, `nice`, `timeout 5`) run it. Only
/// words of the command line can be checked: a program that runs code of its own (`python -c`), or
/// hands a text to a shell of its own (`ssh`, `su -c`), is not known here.
fn check_script(program: &[u8], arguments: &[Vec<u8>]) -> Result<(), TemplateError> {
    let words: Vec<&[u8]> =
        std::iter::once(program).chain(arguments.iter().map(Vec::as_slice)).collect();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        if let Some(shell) = shell_name(word) {
            let options = ShellOptions::read(shell, &words[at..]);
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
    fn read(shell: &str, words: &[&'a [u8]]) -> Self {
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

fn fill(argument: &[u8], key: &[u8]) -> OsString {
    let mut filled = Vec::with_capacity(argument.len() + key.len() + 1);
    let mut rest = argument;
    while let Some(at) = memchr::memmem::find(rest, PLACE) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(key);
        // Behind the place, not behind the key: a key that contains braces is not filled again.
        rest = &rest[at + PLACE.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}
