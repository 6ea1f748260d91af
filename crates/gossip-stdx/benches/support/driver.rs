//! The program behind every benchmark target `instructions`; the other crates include this file.
//!
//! `cargo xtask bench` runs it under valgrind: `--list` prints the names of the operations, one
//! per line; `NAME COUNT` runs one of them so many times. Without a name it runs each of them
//! once, which is how cargo starts it, and shows that none of them fails.
//!
//! It measures nothing itself and never runs an operation that was not asked for, since valgrind
//! would count that too.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a program, and standard output is its result"
)]

use std::hint::black_box;
use std::process::ExitCode;

const USAGE: &str = "usage: instructions [--list | NAME COUNT]";
/// What a command line that cannot be understood ends with.
const USAGE_ERROR: u8 = 2;

/// One operation with a name.
pub(crate) struct Operation {
    name: String,
    /// Prepares and then repeats the operation. Preparing must cost the same whatever the count:
    /// the difference of two counts is what the operation costs.
    run: Box<dyn FnOnce(u64)>,
}

impl Operation {
    pub(crate) fn new(name: impl Into<String>, run: impl FnOnce(u64) + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Runs an operation so many times; the compiler must believe that its result is used.
#[inline]
pub(crate) fn repeat<T>(count: u64, mut operation: impl FnMut() -> T) {
    for _ in 0..count {
        black_box(operation());
    }
}

/// The whole program.
pub(crate) fn main(operations: Vec<Operation>) -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "a program reads its command line")]
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(operations, &arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("instructions: {why}\n{USAGE}");
            ExitCode::from(USAGE_ERROR)
        }
    }
}

/// The error says what is wrong with the arguments.
fn run(operations: Vec<Operation>, arguments: &[String]) -> Result<(), String> {
    let words = arguments.iter().map(String::as_str);
    // `cargo bench` adds `--bench` to whatever it was given.
    let words: Vec<&str> = words.filter(|word| *word != "--bench").collect();
    match words[..] {
        [] => run_each_once(operations),
        ["--list"] => operations.iter().for_each(|it| println!("{}", it.name)),
        [flag, ..] if flag.starts_with('-') => return Err(format!("`{flag}` is unknown")),
        [name, count] => run_one(operations, name, count)?,
        [_] => return Err("a name needs a count".to_owned()),
        [_, _, ref rest @ ..] => return Err(format!("{} argument(s) too many", rest.len())),
    }
    Ok(())
}

fn run_each_once(operations: Vec<Operation>) {
    let count = operations.len();
    operations.into_iter().for_each(|it| (it.run)(1));
    println!("{count} operations work; `cargo xtask bench` counts their instructions");
}

fn run_one(operations: Vec<Operation>, name: &str, count: &str) -> Result<(), String> {
    let why = |_| format!("`{count}` is no count");
    let count: u64 = count.parse().map_err(why)?;
    let mut operations = operations.into_iter();
    let operation = operations.find(|it| it.name == name);
    let operation = operation.ok_or_else(|| format!("no operation is named `{name}`"))?;
    (operation.run)(count);
    Ok(())
}
