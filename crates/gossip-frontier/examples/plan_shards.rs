//! Plans shards for a set of keys: where to split, and how even the parts are.
//!
//! ```text
//!  plan_shards                 a built-in, skewed set of keys, split into 8
//!  plan_shards N               keys from standard input, one per line, split into N
//!  plan_shards N FILE          the same from a file; `-` is standard input
//! ```
//!
//! Keys are bytes: they need not be UTF-8, and empty lines are skipped. Two plans are printed to
//! standard output: an even split of the key space, which needs no knowledge of the keys, and a
//! split by density, which needs a sample. Exit code 0; 1 if the keys cannot be read or are too
//! many; 2 if the command line is invalid.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::process::ExitCode;

use gossip_contracts::coordination::{MAX_KEY_SIZE, MAX_SPLIT_CHILDREN};
use gossip_frontier::{
    KeyBuf, KeyRange, SPLIT_POINTS_MAX, SplitPointsError, key_successor, split_points,
    split_points_by_density,
};

const USAGE: &str = "usage: plan_shards [N [FILE]]   (1 <= N <= 256; without N: a demonstration)";

/// A sample, not a data set: all of it is held in memory, so a larger input is probably a mistake.
const INPUT_BYTES_MAX: u64 = 256 << 20;
/// Keys are held as slices of the input, 16 bytes each: 128 MiB, plus half of that while their list
/// grows. Without a limit, short lines would take eight times the input.
const KEYS_MAX: usize = 8 << 20;

const _: () = assert!(KEYS_MAX as u64 * size_of::<&[u8]>() as u64 <= INPUT_BYTES_MAX);

const DEMO_KEYS: u64 = 100_000;
const DEMO_PARTS: usize = 8;

/// Columns of a key in the table, and of a bar that represents all keys.
const KEY_COLUMNS: usize = 24;
const BAR_COLUMNS: usize = 24;

fn main() -> ExitCode {
    let args = std::env::args_os().skip(1);
    let mut out = BufWriter::new(io::stdout().lock());
    let failure = match run(args, io::stdin().lock(), Limits::REAL, &mut out) {
        Ok(()) => match out.flush() {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => Failure::Output(error),
        },
        Err(failure) => failure,
    };
    let code = failure.exit_code();
    if code != 0 {
        // If writing to stderr fails as well, there is no place left to report it.
        let _ = writeln!(io::stderr(), "plan_shards: {}", failure.message());
    }
    ExitCode::from(code)
}

/// Limits on the input. A value rather than the constants, so that a test can exceed it cheaply.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) keys: usize,
}

impl Limits {
    pub(crate) const REAL: Self = Self { bytes: INPUT_BYTES_MAX, keys: KEYS_MAX };
}

/// Runs the program without the process around it: arguments and input in, the plan out.
pub(crate) fn run(
    mut args: impl Iterator<Item = OsString>,
    stdin: impl Read,
    limits: Limits,
    out: &mut impl Write,
) -> Result<(), Failure> {
    let (parts, file) = (args.next(), args.next());
    if args.next().is_some() {
        return Err(Failure::Usage("too many arguments".to_owned()));
    }
    let Some(parts) = parts else {
        writeln!(
            out,
            "Demonstration with built-in keys. Use `plan_shards N FILE` for your own.\n"
        )?;
        let keys = demo_keys();
        return plan(keys.iter().map(Vec::as_slice).collect(), DEMO_PARTS, out);
    };
    let parts = parse_parts(&parts)?;
    let text = match file {
        Some(path) if path != "-" => read_file(&path, limits)?,
        Some(_) | None => read_all(stdin, "standard input", limits)?,
    };
    plan(keys_of(&text, limits)?, parts, out)
}

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is invalid.
    Usage(String),
    /// The keys cannot be read, or cannot be planned for.
    Input(String),
    /// The plan cannot be written.
    Output(io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Input(_) => 1,
            // `plan_shards | head` is not a failure.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Output(_) => 1,
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            Self::Usage(text) => format!("{text}\n{USAGE}"),
            Self::Input(text) => text.clone(),
            Self::Output(error) => format!("cannot write the plan: {error}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<SplitPointsError> for Failure {
    fn from(error: SplitPointsError) -> Self {
        Self::Usage(error.to_string())
    }
}

fn parse_parts(argument: &OsStr) -> Result<usize, Failure> {
    let number = argument.to_str().and_then(|text| text.parse().ok());
    number
        .filter(|parts| (1..=MAX_SPLIT_CHILDREN).contains(parts))
        .ok_or_else(|| Failure::Usage(format!("{argument:?} is not a number of shards")))
}

fn read_file(path: &OsStr, limits: Limits) -> Result<Vec<u8>, Failure> {
    let name = format!("{path:?}");
    let file = File::open(path).map_err(|error| Failure::Input(format!("{name}: {error}")))?;
    read_all(file, &name, limits)
}

fn read_all(input: impl Read, name: &str, limits: Limits) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    input
        .take(limits.bytes + 1)
        .read_to_end(&mut text)
        .map_err(|error| Failure::Input(format!("{name}: {error}")))?;
    if text.len() as u64 > limits.bytes {
        let limit = limits.bytes;
        return Err(Failure::Input(format!("{name}: more than {limit} bytes; use a sample")));
    }
    Ok(text)
}

fn keys_of(text: &[u8], limits: Limits) -> Result<Vec<&[u8]>, Failure> {
    let mut keys = Vec::new();
    for (line, key) in text.split(|&byte| byte == b'\n').enumerate() {
        if key.len() > MAX_KEY_SIZE {
            let (line, len) = (line + 1, key.len());
            let text = format!("line {line}: a key of {len} bytes, at most {MAX_KEY_SIZE} fit");
            return Err(Failure::Input(text));
        }
        if key.is_empty() {
            continue;
        }
        if keys.len() == limits.keys {
            let limit = limits.keys;
            return Err(Failure::Input(format!("more than {limit} keys; use a sample")));
        }
        keys.push(key);
    }
    Ok(keys)
}

/// Prints both plans for the keys of `sample`, which are sorted in place.
fn plan(mut sample: Vec<&[u8]>, parts: usize, out: &mut impl Write) -> Result<(), Failure> {
    sample.sort_unstable();
    let mut end = KeyBuf::new();
    let (Some(first), Some(last)) = (sample.first(), sample.last()) else {
        return Err(Failure::Input("no keys; expected one per line".to_owned()));
    };
    let end = key_successor(last, &mut end).ok_or_else(|| {
        Failure::Input("the greatest possible key lies in no bounded range".to_owned())
    })?;
    let range = KeyRange::try_new(first, end)
        .map_err(|error| Failure::Input(format!("the keys do not form a range: {error}")))?;

    let mut bufs = vec![KeyBuf::new(); SPLIT_POINTS_MAX];
    let even = split_points(range, parts, &mut bufs)?;
    let dense = split_points_by_density(range, parts, &mut sample)?;
    writeln!(out, "Even split of the key space: only the first and the last key are known.")?;
    let largest_even = print_table(range, &even, &sample, out)?;
    writeln!(out, "\nSplit by density: {} sampled keys are known.", sample.len())?;
    let largest_dense = print_table(range, &dense, &sample, out)?;

    let fair = sample.len().div_ceil(parts);
    writeln!(out, "\nA fair share is {fair} keys. The largest shard holds")?;
    for (name, largest) in [("even split", largest_even), ("by density", largest_dense)] {
        let times = largest as f64 / fair as f64;
        writeln!(out, "  {name:<10} {largest:>9} keys, {times:.2} times a fair share")?;
    }
    Ok(())
}

/// Prints one line per shard and returns the number of keys in the largest.
fn print_table(
    range: KeyRange<'_>,
    points: &[&[u8]],
    sorted: &[&[u8]],
    out: &mut impl Write,
) -> io::Result<usize> {
    let (from, to) = ("from", "up to, not including");
    writeln!(out, "  shard  {from:<KEY_COLUMNS$}  {to:<KEY_COLUMNS$}      keys   share")?;
    let starts = [range.start()].into_iter().chain(points.iter().copied());
    let ends = points.iter().copied().chain([range.end()]);
    let mut largest = 0;
    for (shard, (start, end)) in starts.zip(ends).enumerate() {
        let below = |bound: &[u8]| sorted.partition_point(|key| *key < bound);
        let count = below(end) - below(start);
        let share = count as f64 / sorted.len() as f64;
        // Even the smallest non-empty part gets a visible bar.
        let length = (share * BAR_COLUMNS as f64).round() as usize;
        let bar = "#".repeat(length.max(usize::from(count > 0)));
        let (start, end) = (abbreviated(start), abbreviated(end));
        let percent = share * 100.0;
        write!(out, "  {shard:>5}  {start:<KEY_COLUMNS$}  {end:<KEY_COLUMNS$} ")?;
        writeln!(out, "{count:>9}  {percent:>5.1}%  {bar}")?;
        largest = largest.max(count);
    }
    Ok(largest)
}

/// Returns a key as escaped text without the middle of a long key: both ends distinguish keys.
fn abbreviated(key: &[u8]) -> String {
    let text = key.escape_ascii().to_string();
    if text.len() <= KEY_COLUMNS {
        return text;
    }
    // Whole bytes, never half an escape; a byte takes at least one column.
    let width = |byte: u8| byte.escape_ascii().len();
    let fitting = |bytes: &mut dyn Iterator<Item = u8>, columns: usize| {
        let mut used = 0;
        bytes
            .take_while(|&byte| {
                used += width(byte);
                used <= columns
            })
            .count()
    };
    let head = fitting(&mut key.iter().copied(), KEY_COLUMNS - 2 - KEY_COLUMNS / 3);
    let tail = fitting(&mut key.iter().rev().copied(), KEY_COLUMNS / 3);
    let (head, tail) = (&key[..head], &key[key.len() - tail..]);
    format!("{}..{}", head.escape_ascii(), tail.escape_ascii())
}

/// Returns object names as in a typical bucket: mostly logs of a few days, one busy user, and a few
/// names spread over the key space. A fixed generator, so that every run prints the same table.
fn demo_keys() -> Vec<Vec<u8>> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let key = |_| {
        let text = match random(100) {
            0..70 => {
                let (day, hour, id) = (20 + random(3), random(24), random(1 << 32));
                format!("logs/07-{day:02}/{hour:02}/{id:08x}")
            }
            70..90 => format!("users/{:08}/{:05}.jpg", 4711, random(100_000)),
            90..97 => format!("users/{:08}/profile", random(100_000_000)),
            _ => format!("{:08x}/blob", random(1 << 32)),
        };
        text.into_bytes()
    };
    (0..DEMO_KEYS).map(key).collect()
}
