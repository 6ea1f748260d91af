//! A command line with places for keys.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use thiserror::Error;

/// Where keys go.
const PLACE: &[u8] = b"{}";

/// Shells whose `-c` argument is a script.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ksh", "fish"];

/// A program and its arguments, in which `{}` stands for keys.
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
        if has_place(program.as_bytes()) {
            return Err(TemplateError::PlaceInProgram);
        }
        check_script(program, arguments)?;
        let mut arguments: Vec<Vec<u8>> =
            arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
        if !arguments.iter().any(|argument| has_place(argument)) {
            arguments.push(PLACE.to_vec());
        }
        let inside = |argument: &Vec<u8>| argument != PLACE && has_place(argument);
        let kind = if arguments.iter().any(inside) { Kind::One } else { Kind::Many };
        Ok(Self { program: program.clone(), arguments, kind })
    }

    /// Whether a process may get more than one key.
    #[must_use]
    pub fn takes_many(&self) -> bool {
        self.kind == Kind::Many
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &OsStr {
        &self.program
    }

    /// The arguments for these keys, of which there is one unless the template takes many.
    pub fn arguments(&self, keys: &[&[u8]]) -> Vec<OsString> {
        debug_assert!(keys.len() == 1 || self.takes_many(), "a batch of one");
        let mut filled = Vec::with_capacity(self.arguments.len() + keys.len());
        for argument in &self.arguments {
            if argument == PLACE {
                filled.extend(keys.iter().map(|key| OsStr::from_bytes(key).to_os_string()));
            } else {
                filled.push(fill(argument, keys.first().copied().unwrap_or_default()));
            }
        }
        filled
    }
}

// The program only: arguments may hold what the user keeps to himself.
impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template")
            .field("program", &self.program)
            .field("arguments", &self.arguments.len())
            .finish()
    }
}

/// A command line that cannot be run for keys. Each says what to type instead.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TemplateError {
    /// There is no program.
    #[error("no command is given; type it behind --, as in: -- wc -c {{}}")]
    Empty,
    /// A key as a program.
    #[error("{{}} cannot be the program itself; type a program, then {{}}")]
    PlaceInProgram,
    /// A key inside a script: its bytes would be read as code.
    #[error(
        "{{}} inside a shell script would let a name run as code; \
         type: sh -c '… \"$1\" …' sh {{}}"
    )]
    PlaceInScript,
}

fn has_place(text: &[u8]) -> bool {
    memchr::memmem::find(text, PLACE).is_some()
}

/// A script is the argument behind `-c` (or a bundle of letters that ends in `c`) of a shell.
fn check_script(program: &OsStr, arguments: &[OsString]) -> Result<(), TemplateError> {
    let name = Path::new(program).file_name().and_then(OsStr::to_str);
    if !name.is_some_and(|name| SHELLS.contains(&name)) {
        return Ok(());
    }
    let is_flag = |argument: &OsString| {
        let bytes = argument.as_bytes();
        bytes.starts_with(b"-") && !bytes.starts_with(b"--") && bytes.ends_with(b"c")
    };
    let script = arguments.iter().position(is_flag).and_then(|flag| arguments.get(flag + 1));
    match script.is_some_and(|script| has_place(script.as_bytes())) {
        true => Err(TemplateError::PlaceInScript),
        false => Ok(()),
    }
}

fn fill(argument: &[u8], key: &[u8]) -> OsString {
    let mut filled = Vec::with_capacity(argument.len() + key.len());
    let mut rest = argument;
    while let Some(at) = memchr::memmem::find(rest, PLACE) {
        filled.extend_from_slice(&rest[..at]);
        filled.extend_from_slice(key);
        rest = &rest[at + PLACE.len()..];
    }
    filled.extend_from_slice(rest);
    OsString::from_vec(filled)
}
