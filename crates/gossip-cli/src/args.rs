//! What can be typed.

use std::ffi::OsString;
use std::num::{NonZeroU8, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, RangedU64ValueParser};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use crate::duration;

/// Touch every key of something huge, never lose your place, and know what was missed.
///
/// Exit codes: 0 complete, 1 internal failure, 2 usage, 3 incomplete (something was set aside or
/// not read), 4 the run was failed or cancelled, 5 the store cannot be reached, 10 something was
/// found and --fail-on findings given, 130 interrupted with state saved.
#[derive(Debug, Parser)]
#[command(name = "gossip", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads what was typed.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let matches = names_only(Self::command()).try_get_matches()?;
        Self::from_arg_matches(&matches)
    }
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Where coordination lives: sqlite:PATH, etcd://HOST:PORT/PREFIX or memory:
    ///
    /// Without it a file of yours: $XDG_STATE_HOME/gossip/store.db, or
    /// ~/.local/state/gossip/store.db.
    #[arg(long, env = "GOSSIP_STORE", global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Whose runs these are: a name of up to 32 bytes
    #[arg(
        long,
        env = "GOSSIP_TENANT",
        global = true,
        value_name = "NAME",
        default_value = "default"
    )]
    pub(crate) tenant: String,
    /// How data is written to standard output
    #[arg(short, long, env = "GOSSIP_OUTPUT", global = true, value_enum, default_value = "table")]
    pub(crate) output: Format,
    /// Say nothing but failures
    #[arg(short, long, env = "GOSSIP_QUIET", global = true, value_parser = flag())]
    pub(crate) quiet: bool,
    /// Say more
    #[arg(
        short,
        long,
        env = "GOSSIP_VERBOSE",
        global = true,
        value_parser = flag(),
        conflicts_with = "quiet"
    )]
    pub(crate) verbose: bool,
}

/// How data is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people.
    Table,
    /// One JSON value.
    Json,
    /// One JSON value a line.
    Jsonl,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command for every key of a source; the same again goes on where it stopped
    #[command(after_help = EXEC_HELP)]
    Exec(Box<ExecArgs>),
    /// Join a run from another process or machine
    Worker(Box<WorkerArgs>),
    /// Check a certificate that `gossip run export` wrote, without a store
    Verify(VerifyArgs),
    /// Look at runs, and steer them
    #[command(subcommand)]
    Run(RunCommand),
    /// Look at shards, and steer them
    #[command(subcommand)]
    Shard(ShardCommand),
    /// Move shards from one worker to another
    #[command(subcommand)]
    Handoff(HandoffCommand),
}

const EXEC_HELP: &str = "\
Sources: a directory (every file below it), lines:FILE, jsonl:FILE, csv:FILE, range:A..B.
{} stands for the file's path, the line or row, or the number. Without {} it is put at the end.

Examples:
  gossip exec . -- wc -c {}
  gossip exec lines:urls.txt --jobs 8 -- curl -sSfO {}
  gossip exec range:0..1000 -- sh -c 'echo \"$1 squared is $(($1 * $1))\"' sh {}
  gossip exec . --stream -- ./handler.py       (JSON lines on its standard input and output)";

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// What makes a run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Run options")]
pub(crate) struct JobArgs {
    /// What to go through: a directory, lines:FILE, jsonl:FILE, csv:FILE or range:A..B
    #[arg(help_heading = None)]
    pub(crate) source: OsString,
    /// The command, behind --
    #[arg(last = true, required = true, value_name = "COMMAND", help_heading = None)]
    pub(crate) command: Vec<OsString>,
    /// Leave out what ripgrep passes over: hidden and ignored files
    #[arg(long, env = "GOSSIP_IGNORE", value_parser = flag())]
    pub(crate) ignore: bool,
    /// Follow symbolic links
    #[arg(long, env = "GOSSIP_FOLLOW_LINKS", value_parser = flag())]
    pub(crate) follow_links: bool,
    /// The first row of a CSV file is a row like others
    #[arg(long, env = "GOSSIP_NO_HEADER", value_parser = flag())]
    pub(crate) no_header: bool,
    /// Keep the command running, and give it items as JSON lines
    #[arg(long, env = "GOSSIP_STREAM", value_parser = flag())]
    pub(crate) stream: bool,
    /// How long a lease lasts: when a worker dies, others wait so long before they go on
    #[arg(long, env = "GOSSIP_LEASE", value_parser = duration::parse, default_value = "15s", value_name = "TIME")]
    pub(crate) lease: Duration,
    /// How often a shard may be begun in a row without any progress before it is set aside
    #[arg(long, env = "GOSSIP_RETRIES", default_value_t = 3, value_name = "N")]
    pub(crate) retries: u32,
    /// How many shards to begin with; four for each job unless given
    #[arg(long, env = "GOSSIP_SHARDS", value_name = "N")]
    pub(crate) shards: Option<NonZeroUsize>,
    /// Begin anew although the same command was completed before
    #[arg(long, env = "GOSSIP_RESTART", value_parser = flag())]
    pub(crate) restart: bool,
    /// Begin although a run of this source with other settings is not finished
    #[arg(long, env = "GOSSIP_ALLOW_PARALLEL", value_parser = flag())]
    pub(crate) allow_parallel: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// The run to join: 16 hexadecimal digits
    #[arg(value_parser = parse_id)]
    pub(crate) run: u64,
    /// Another command than that of the run, behind --
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// How this process works; no part of what makes a run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Worker options")]
pub(crate) struct WorkArgs {
    /// How many commands run at a time; one for each processor unless given
    #[arg(short, long, env = "GOSSIP_JOBS", value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Keys for each command, or items that a running one has at a time
    #[arg(short, long, env = "GOSSIP_BATCH", default_value_t = NonZeroUsize::MIN, value_name = "N")]
    pub(crate) batch: NonZeroUsize,
    /// How long a command may take, or a running one may answer nothing; 0s for ever
    #[arg(long, env = "GOSSIP_TIMEOUT", value_parser = duration::parse, default_value = "10m", value_name = "TIME")]
    pub(crate) timeout: Duration,
    /// How often a key is tried before it is set aside
    #[arg(
        long,
        env = "GOSSIP_TRIES",
        default_value_t = 3,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(crate) tries: u32,
    /// Stop when more shards than this were set aside
    #[arg(long, env = "GOSSIP_MAX_PARKED", default_value_t = 100, value_name = "N")]
    pub(crate) max_parked: usize,
    /// Keys in a second on average, in this process; one second's worth may come at once
    #[arg(long, env = "GOSSIP_RATE", value_name = "N", value_parser = at_least_one())]
    pub(crate) rate: Option<u64>,
    /// Bytes in a second on average, likewise, where the source tells sizes
    #[arg(long, env = "GOSSIP_BYTE_RATE", value_name = "N", value_parser = at_least_one())]
    pub(crate) byte_rate: Option<u64>,
    /// Record progress after so many keys
    #[arg(
        long,
        env = "GOSSIP_CHECKPOINT_KEYS",
        default_value_t = 1000,
        value_name = "N",
        value_parser = at_least_one()
    )]
    pub(crate) checkpoint_keys: u64,
    /// Record progress after such a time
    #[arg(long, env = "GOSSIP_CHECKPOINT_EVERY", value_parser = duration::parse, default_value = "1s", value_name = "TIME")]
    pub(crate) checkpoint_every: Duration,
    /// The exit status by which a command says: done, and something was found
    ///
    /// A running command says so in its answers: {"type":"done","id":7,"findings":2}.
    #[arg(long, env = "GOSSIP_FOUND_STATUS", value_name = "STATUS")]
    pub(crate) found_status: Option<NonZeroU8>,
    /// End with 10 if everything is done and something was found, by whomever
    #[arg(long, env = "GOSSIP_FAIL_ON", value_enum, value_name = "WHAT")]
    pub(crate) fail_on: Option<FailOn>,
    /// Do not split busy shards when somebody has nothing to do
    #[arg(long, env = "GOSSIP_NO_SPLIT", value_parser = flag())]
    pub(crate) no_split: bool,
}

/// What a run that is complete may still fail on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Something was found.
    Findings,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// Make a run without working on it, and tell its id; `gossip worker` joins it
    Create(Box<JobArgs>),
    /// All runs, also those that are over
    List {
        /// Only those that are not over
        #[arg(long, env = "GOSSIP_ACTIVE", value_parser = flag())]
        active: bool,
    },
    /// One run: how far it has come, and how long it will take
    Show {
        #[command(flatten)]
        run: RunArg,
        /// How long a run that is worked on is watched, to tell the time left; 0s for not at all
        #[arg(long, env = "GOSSIP_WATCH", value_parser = duration::parse, default_value = "2s", value_name = "TIME")]
        watch: Duration,
    },
    /// Let nobody start a shard, and the owners give theirs back
    Pause(RunArg),
    /// Let shards be started again
    Resume(RunArg),
    /// Stop a run for good
    Cancel(RunArg),
    /// Write the certificate of a settled run: what was covered, and what was not
    Export {
        #[command(flatten)]
        run: RunArg,
        #[command(flatten)]
        key: KeyArg,
        /// Into this file instead of standard output
        #[arg(long, env = "GOSSIP_TO", value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Check what a settled run says against itself, and against its source
    Verify {
        #[command(flatten)]
        run: RunArg,
        /// List the source again and compare every key
        #[arg(long, env = "GOSSIP_COMPARE", value_parser = flag())]
        source: bool,
    },
    /// Delete a run that is over
    Rm {
        #[command(flatten)]
        run: RunArg,
        // A variable that was left in a shell would take the guard off every deletion.
        /// Delete a run whose record is damaged, over or not: nobody can read that
        #[arg(long)]
        damaged: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The certificate; - for standard input
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) key: KeyArg,
    /// List this source again and compare every key; add the options that were asked for
    #[arg(long, env = "GOSSIP_SOURCE", value_name = "SOURCE")]
    pub(crate) source: Option<OsString>,
    /// What ripgrep passes over was to be left out
    #[arg(long, env = "GOSSIP_IGNORE", value_parser = flag())]
    pub(crate) ignore: bool,
    /// Symbolic links were to be followed
    #[arg(long, env = "GOSSIP_FOLLOW_LINKS", value_parser = flag())]
    pub(crate) follow_links: bool,
    /// The first row of the CSV file was to be a row like others
    #[arg(long, env = "GOSSIP_NO_HEADER", value_parser = flag())]
    pub(crate) no_header: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArg {
    /// A file with the secret that certificates are signed with: 16 bytes or more
    #[arg(long, env = "GOSSIP_KEY_FILE", value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArg {
    /// 16 hexadecimal digits
    #[arg(value_parser = parse_id)]
    pub(crate) run: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShardCommand {
    /// The shards of a run
    List {
        #[command(flatten)]
        run: RunArg,
        /// Only those that are set aside
        #[arg(long, env = "GOSSIP_PARKED", value_parser = flag())]
        parked: bool,
    },
    /// One shard
    Show(ShardArg),
    /// Bring a shard that was set aside back
    Unpark {
        #[command(flatten)]
        run: RunArg,
        /// 16 hexadecimal digits
        #[arg(value_parser = parse_id, required_unless_present = "all")]
        shard: Option<u64>,
        /// All of the run
        #[arg(long, env = "GOSSIP_ALL", value_parser = flag(), conflicts_with = "shard")]
        all: bool,
    },
    /// Ask the owner to split what remains
    Split {
        #[command(flatten)]
        shard: ShardArg,
        /// At this key
        #[arg(long, env = "GOSSIP_AT", value_name = "KEY")]
        at: Option<OsString>,
    },
    /// Ask the owner to give the shard back
    Release {
        #[command(flatten)]
        shard: ShardArg,
        /// Take it away without asking: its owner is dead
        #[arg(long, env = "GOSSIP_FORCE", value_parser = flag())]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum HandoffCommand {
    /// Ask the owner of a shard to hand it to another worker
    Start {
        #[command(flatten)]
        shard: ShardArg,
        /// To this worker: 16 hexadecimal digits; to anybody unless given
        #[arg(long, env = "GOSSIP_TO_WORKER", value_parser = parse_id, value_name = "WORKER")]
        to: Option<u64>,
    },
    /// Moves that are under way, and those that failed; one that happened is forgotten at once
    List {
        /// Only those that are under way
        #[arg(long, env = "GOSSIP_ACTIVE", value_parser = flag())]
        active: bool,
    },
    /// One move
    Show {
        /// As `gossip handoff list` shows it
        id: String,
    },
    /// Ask for a move to be taken back, or end the record of one that can no longer happen
    Rollback {
        /// As `gossip handoff list` shows it
        id: String,
    },
    /// The workers heard of lately: to whom a shard can go
    Workers,
}

#[derive(Debug, Args)]
pub(crate) struct ShardArg {
    /// 16 hexadecimal digits
    #[arg(value_parser = parse_id)]
    pub(crate) run: u64,
    /// 16 hexadecimal digits
    #[arg(value_parser = parse_id)]
    pub(crate) shard: u64,
}

/// Lets the help name variables and not tell their values, which stand in its way.
fn names_only(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| arg.hide_env_values(true)).mut_subcommands(names_only)
}

/// How the variable of a flag is read: yes, true, on, 1, or their opposites.
fn flag() -> BoolishValueParser {
    BoolishValueParser::new()
}

/// Numbers of which none would mean to stand still.
fn at_least_one() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..)
}

/// Reads an id as it is shown.
fn parse_id(text: &str) -> Result<u64, String> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    number.ok_or_else(|| "an id is 16 hexadecimal digits; `gossip run list` shows them".into())
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
