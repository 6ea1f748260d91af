//! The program behind every benchmark target `instructions`; the other crates include this file.
//!
//! `cargo xtask bench` runs it under valgrind: `--list` prints the names of the operations, one per
//! line; `NAME COUNT` runs one of them COUNT times. Without a name it runs each of them once, which
//! is how cargo starts it, and shows that none of them fails.
//!
//! It measures nothing itself and never runs an operation that was not requested, because valgrind
//! would count it too.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a program, and standard output is its result"
)]

use std::hint::black_box;
use std::process::ExitCode;

const USAGE: &str = "usage: instructions [--list | NAME COUNT]";
/// Exit code for invalid arguments.
const USAGE_ERROR: u8 = 2;

/// A named operation.
pub(crate) struct Operation {
    name: String,
    /// Prepares and then repeats the operation. The preparation must cost the same for every count:
    /// the cost of the operation is computed from the difference of two counts.
    run: Box<dyn FnOnce(u64)>,
}

impl Operation {
    pub(crate) fn new(name: impl Into<String>, run: impl FnOnce(u64) + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Runs an operation `count` times, with its result passed through a black box.
#[inline]
pub(crate) fn repeat<T>(count: u64, mut operation: impl FnMut() -> T) {
    for _ in 0..count {
        black_box(operation());
    }
}

/// Runs the program: parses the arguments and runs the requested operations.
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

/// Runs the operations that the arguments request; the error describes invalid arguments.
fn run(operations: Vec<Operation>, arguments: &[String]) -> Result<(), String> {
    let words = arguments.iter().map(String::as_str);
    // `cargo bench` appends `--bench` to the arguments.
    let words: Vec<&str> = words.filter(|word| *word != "--bench").collect();
    match words[..] {
        [] => run_each_once(operations),
        ["--list"] => operations.iter().for_each(|it| println!("{}", it.name)),
        [flag, ..] if flag.starts_with('-') => return Err(format!("`{flag}` is unknown")),
        [name, count] => run_one(operations, name, count)?,
        [_] => return Err("NAME requires COUNT".to_owned()),
        [_, _, ref rest @ ..] => return Err(format!("{} argument(s) too many", rest.len())),
    }
    Ok(())
}

fn run_each_once(operations: Vec<Operation>) {
    let count = operations.len();
    operations.into_iter().for_each(|it| (it.run)(1));
    println!("ran {count} operations once; `cargo xtask bench` counts their instructions");
}

fn run_one(operations: Vec<Operation>, name: &str, count: &str) -> Result<(), String> {
    let why = |_| format!("`{count}` is not a number");
    let count: u64 = count.parse().map_err(why)?;
    let mut operations = operations.into_iter();
    let operation = operations.find(|it| it.name == name);
    let operation = operation.ok_or_else(|| format!("no operation is named `{name}`"))?;
    (operation.run)(count);
    Ok(())
}
