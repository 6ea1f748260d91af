//! Command-line arguments.

use std::ffi::OsString;
use std::num::{IntErrorKind, NonZeroU8, NonZeroU32, NonZeroU64, NonZeroUsize, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{
    ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
};

use crate::duration;

/// Process every item of a large source, resume after any crash, and prove that none was missed.
///
/// Exit codes: 0 complete, 1 internal error or broken command, 2 usage error, 3 incomplete (items
/// failed or could not be read), 4 the run failed or was cancelled, 5 store error, 6 the store
/// needs a newer gossip, 10 complete with findings and --fail-on findings, 130 interrupted with
/// progress saved.
#[derive(Debug, Parser)]
#[command(name = "gossip", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the arguments of this process.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let matches = hide_env_values(Self::command()).try_get_matches()?;
        Self::from_arg_matches(&matches)
    }
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Store of the run state: sqlite:PATH, etcd://HOST/PREFIX, postgres://USER@HOST/DB, memory:
    ///
    /// Default: $XDG_STATE_HOME/gossip/store.db, or ~/.local/state/gossip/store.db.
    #[arg(long, env = "GOSSIP_STORE", global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Tenant that owns the runs: a name of 1 to 32 bytes
    #[arg(
        long,
        env = "GOSSIP_TENANT",
        global = true,
        value_name = "NAME",
        default_value = "default"
    )]
    pub(crate) tenant: String,
    /// Output format on stdout
    #[arg(short, long, env = "GOSSIP_OUTPUT", global = true, value_enum, default_value = "table")]
    pub(crate) output: Format,
    /// Print errors only
    #[arg(short, long, env = "GOSSIP_QUIET", global = true, value_parser = flag())]
    pub(crate) quiet: bool,
    /// Print events of the run and its shards; -vv: also checkpoints and renewals
    #[arg(
        short,
        long,
        env = "GOSSIP_VERBOSE",
        global = true,
        action = ArgAction::Count,
        value_name = "LEVEL",
        conflicts_with = "quiet"
    )]
    pub(crate) verbose: u8,
}

/// Format of the data on standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns.
    Table,
    /// One JSON value.
    Json,
    /// One JSON value per line.
    Jsonl,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command for every item of a source; repeat the same command to resume
    #[command(after_help = EXEC_HELP)]
    Exec(Box<ExecArgs>),
    /// Join a run from another process or machine
    Worker(Box<WorkerArgs>),
    /// Verify a coverage certificate written by `gossip run export`; needs no store
    Verify(VerifyArgs),
    /// Create, show and control runs
    #[command(subcommand)]
    Run(RunCommand),
    /// Show and control the shards of a run
    #[command(subcommand)]
    Shard(ShardCommand),
    /// Hand shards over from one worker to another
    #[command(subcommand)]
    Handoff(HandoffCommand),
    /// Show and set what a tenant may use
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Operate the store itself
    #[command(subcommand)]
    Store(StoreCommand),
}

const EXEC_HELP: &str = "\
Sources: a directory (every file below it), lines:FILE, jsonl:FILE, csv:FILE, range:A..B.
{} is replaced by the file's path, the line or row, or the number; without {} it is appended.

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

/// Source, command and settings of a run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Run options")]
pub(crate) struct JobArgs {
    /// Items to process: a directory, lines:FILE, jsonl:FILE, csv:FILE or range:A..B
    #[arg(help_heading = None)]
    pub(crate) source: OsString,
    /// Command to run, after --
    #[arg(last = true, required = true, value_name = "COMMAND", help_heading = None)]
    pub(crate) command: Vec<OsString>,
    /// Skip hidden files and files that .gitignore and .ignore exclude
    #[arg(long, env = "GOSSIP_IGNORE", value_parser = flag())]
    pub(crate) ignore: bool,
    /// Follow symbolic links
    #[arg(long, env = "GOSSIP_FOLLOW_LINKS", value_parser = flag())]
    pub(crate) follow_links: bool,
    /// Treat the first row of a CSV file as data
    #[arg(long, env = "GOSSIP_NO_HEADER", value_parser = flag())]
    pub(crate) no_header: bool,
    /// Start the command once per job and send it items as JSON lines
    #[arg(long, env = "GOSSIP_STREAM", value_parser = flag())]
    pub(crate) stream: bool,
    /// Lease duration; a dead worker's shards are reassigned after this time
    #[arg(long, env = "GOSSIP_LEASE", value_parser = duration::parse, default_value = "15s", value_name = "TIME")]
    pub(crate) lease: Duration,
    /// Attempts without progress before a shard is parked
    #[arg(long, env = "GOSSIP_RETRIES", default_value_t = 3, value_name = "N")]
    pub(crate) retries: u32,
    /// Initial number of shards, 1 to 10000 [default: 4 per job, at most 256]
    #[arg(long, env = "GOSSIP_SHARDS", value_name = "N", value_parser = positive::<NonZeroUsize>)]
    pub(crate) shards: Option<NonZeroUsize>,
    /// Start a new run even if the same command has finished before
    #[arg(long, env = "GOSSIP_RESTART", value_parser = flag())]
    pub(crate) restart: bool,
    /// Start even if another run of this source is unfinished
    #[arg(long, env = "GOSSIP_ALLOW_PARALLEL", value_parser = flag())]
    pub(crate) allow_parallel: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Id of the run to join (see `gossip run list`)
    #[arg(value_parser = parse_id)]
    pub(crate) run: u64,
    /// Command to use instead of the run's own, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// Settings of this process; they are not part of the run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Worker options")]
pub(crate) struct WorkArgs {
    /// Number of commands to run in parallel [default: one per CPU]
    #[arg(short, long, env = "GOSSIP_JOBS", value_name = "N", value_parser = positive::<NonZeroUsize>)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Items per command, or in-flight items per command with --stream
    #[arg(
        short,
        long,
        env = "GOSSIP_BATCH",
        default_value = "1",
        value_name = "N",
        value_parser = positive::<NonZeroUsize>
    )]
    pub(crate) batch: NonZeroUsize,
    /// Time limit of a command, with --stream of each reply; 0s: no limit
    #[arg(long, env = "GOSSIP_TIMEOUT", value_parser = duration::parse, default_value = "10m", value_name = "TIME")]
    pub(crate) timeout: Duration,
    /// Attempts per item before it fails
    #[arg(
        long,
        env = "GOSSIP_TRIES",
        default_value = "3",
        value_name = "N",
        value_parser = positive::<NonZeroU32>
    )]
    pub(crate) tries: NonZeroU32,
    /// Stop after this process has parked more shards than this
    #[arg(long, env = "GOSSIP_MAX_PARKED", default_value_t = 100, value_name = "N")]
    pub(crate) max_parked: usize,
    /// Retry a shard parked with "too many errors" so often when nothing else is left
    #[arg(long, env = "GOSSIP_RETRY_PARKED", default_value_t = 0, value_name = "N")]
    pub(crate) retry_parked: u32,
    /// Wait before such a retry
    #[arg(
        long,
        env = "GOSSIP_RETRY_PARKED_AFTER",
        default_value = "30s",
        value_name = "TIME",
        value_parser = duration::parse
    )]
    pub(crate) retry_parked_after: Duration,
    /// Limit of this process in items per second; bursts of up to one second's worth
    #[arg(long, env = "GOSSIP_RATE", value_name = "N", value_parser = positive::<NonZeroU64>)]
    pub(crate) rate: Option<NonZeroU64>,
    /// Limit of this process in bytes per second, for sources with known sizes
    #[arg(long, env = "GOSSIP_BYTE_RATE", value_name = "N", value_parser = positive::<NonZeroU64>)]
    pub(crate) byte_rate: Option<NonZeroU64>,
    /// Save progress after this many items
    #[arg(
        long,
        env = "GOSSIP_CHECKPOINT_KEYS",
        default_value = "10000",
        value_name = "N",
        value_parser = positive::<NonZeroU64>
    )]
    pub(crate) checkpoint_keys: NonZeroU64,
    /// Save progress after this time
    #[arg(long, env = "GOSSIP_CHECKPOINT_EVERY", value_parser = duration::parse, default_value = "1s", value_name = "TIME")]
    pub(crate) checkpoint_every: Duration,
    /// Exit status that means: done, and something was found
    ///
    /// With --stream the command reports findings in its replies instead:
    /// {"type":"done","id":7,"findings":2}.
    #[arg(
        long,
        env = "GOSSIP_FOUND_STATUS",
        value_name = "STATUS",
        value_parser = positive::<NonZeroU8>
    )]
    pub(crate) found_status: Option<NonZeroU8>,
    /// Exit with 10 if the run is complete and any worker reported findings
    #[arg(long, env = "GOSSIP_FAIL_ON", value_enum, value_name = "WHAT")]
    pub(crate) fail_on: Option<FailOn>,
    /// How long to wait for a store that is unreachable or full; 0s: do not wait
    #[arg(long, env = "GOSSIP_STORE_PATIENCE", value_parser = duration::parse, default_value = "10m", value_name = "TIME")]
    pub(crate) store_patience: Duration,
    /// Do not split busy shards for idle workers
    #[arg(long, env = "GOSSIP_NO_SPLIT", value_parser = flag())]
    pub(crate) no_split: bool,
}

/// Results that make a complete run fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Any finding.
    Findings,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Show how many shards a tenant has and may have, or set the limit
    Limit {
        /// The tenant; default: that of --tenant
        #[arg(value_name = "TENANT")]
        name: Option<String>,
        /// Maximum number of shards of all its runs, or `default`; existing shards are kept
        #[arg(long, value_name = "NUMBER", value_parser = shard_limit)]
        shards: Option<ShardLimit>,
    },
}

/// A new limit on the shards of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShardLimit {
    /// No stored limit: the default of the store applies.
    Default,
    AtMost(u64),
}

fn shard_limit(text: &str) -> Result<ShardLimit, &'static str> {
    if text == "default" {
        return Ok(ShardLimit::Default);
    }
    // Checked first, because `parse` would accept a sign.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number);
    number.map(ShardLimit::AtMost).ok_or("expected a number of shards, or default")
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy a SQLite store, also while it is in use, to a new file
    Backup {
        /// File to create
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// After a restore from a backup: refuse the leases of all workers from before it
    Restored(RestoredArgs),
    /// Upgrade the store to the newest format, once every worker runs this version
    Upgrade(UpgradeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// Time for older workers to finish and leave before their format is replaced
    #[arg(long, env = "GOSSIP_WAIT", value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub(crate) wait: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct RestoredArgs {
    /// Only the runs of --tenant, for credentials that cannot read all tenants
    #[arg(long, env = "GOSSIP_ONLY_TENANT", value_parser = flag())]
    pub(crate) only_tenant: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunCommand {
    /// Create a run without working on it and print its id; `gossip worker` joins it
    Create(Box<JobArgs>),
    /// List runs
    List {
        /// Only unfinished runs
        #[arg(long, env = "GOSSIP_ACTIVE", value_parser = flag())]
        active: bool,
    },
    /// Show one run with its progress and estimated time left
    Show {
        #[command(flatten)]
        run: RunArg,
        /// How long to sample an active run to estimate the time left; 0s: do not estimate
        #[arg(long, env = "GOSSIP_WATCH", value_parser = duration::parse, default_value = "2s", value_name = "TIME")]
        watch: Duration,
    },
    /// Pause a run: workers release their shards and claim no more
    Pause(RunArg),
    /// Resume a paused run
    Resume(RunArg),
    /// Cancel a run; it cannot be resumed
    Cancel(RunArg),
    /// Mark a run as failed; it cannot be resumed
    Fail(RunArg),
    /// Write the coverage certificate of a finished run
    Export {
        #[command(flatten)]
        run: RunArg,
        #[command(flatten)]
        key: KeyArg,
        /// Write to this file instead of stdout
        #[arg(long, env = "GOSSIP_TO", value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Verify that a finished run covers its whole source
    Verify {
        #[command(flatten)]
        run: RunArg,
        /// List the source again and compare every key with the run
        #[arg(long, env = "GOSSIP_COMPARE", value_parser = flag())]
        source: bool,
    },
    /// Delete a finished run
    Rm {
        #[command(flatten)]
        run: RunArg,
        // No environment variable: one left set in a shell would disable the check for every
        // deletion.
        /// Delete a run whose record is damaged, even if it may be unfinished
        #[arg(long)]
        damaged: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Certificate file; - for stdin
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) key: KeyArg,
    /// List this source again and compare every key; give the expected options, too
    #[arg(long, env = "GOSSIP_SOURCE", value_name = "SOURCE")]
    pub(crate) source: Option<OsString>,
    /// Expect a certificate of a run with --ignore
    #[arg(long, env = "GOSSIP_IGNORE", value_parser = flag())]
    pub(crate) ignore: bool,
    /// Expect a certificate of a run with --follow-links
    #[arg(long, env = "GOSSIP_FOLLOW_LINKS", value_parser = flag())]
    pub(crate) follow_links: bool,
    /// Expect a certificate of a run with --no-header
    #[arg(long, env = "GOSSIP_NO_HEADER", value_parser = flag())]
    pub(crate) no_header: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KeyArg {
    /// File with the signing key of certificates: 16 to 4096 bytes
    #[arg(long, env = "GOSSIP_KEY_FILE", value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArg {
    /// Run id (see `gossip run list`)
    #[arg(value_parser = parse_id)]
    pub(crate) run: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShardCommand {
    /// List the shards of a run
    List {
        #[command(flatten)]
        run: RunArg,
        /// Only parked shards
        #[arg(long, env = "GOSSIP_PARKED", value_parser = flag())]
        parked: bool,
        /// Only shards whose record is damaged
        #[arg(long, env = "GOSSIP_DAMAGED", value_parser = flag(), conflicts_with = "parked")]
        damaged: bool,
    },
    /// Show one shard
    Show(ShardArg),
    /// Unpark shards, so that their items are tried again
    Unpark {
        #[command(flatten)]
        run: RunArg,
        /// Shard id (see `gossip shard list RUN`)
        #[arg(value_parser = parse_id, required_unless_present = "all")]
        shard: Option<u64>,
        /// All parked shards of the run
        #[arg(long, env = "GOSSIP_ALL", value_parser = flag(), conflicts_with = "shard")]
        all: bool,
    },
    /// Rebuild the record of a damaged shard; its items are processed again
    Repair(ShardArg),
    /// Request the lease holder to split the rest of a shard
    Split {
        #[command(flatten)]
        shard: ShardArg,
        /// Split at this key, written as in `gossip shard list`
        #[arg(long, env = "GOSSIP_AT", value_name = "KEY")]
        at: Option<OsString>,
    },
    /// Request the lease holder to release a shard
    Release {
        #[command(flatten)]
        shard: ShardArg,
        /// Revoke the lease at once, for example of a dead worker
        #[arg(long, env = "GOSSIP_FORCE", value_parser = flag())]
        force: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum HandoffCommand {
    /// Request the lease holder to hand a shard over to another worker
    Start {
        #[command(flatten)]
        shard: ShardArg,
        /// Id of the receiving worker (see `gossip handoff workers`) [default: any idle worker]
        #[arg(long, env = "GOSSIP_TO_WORKER", value_parser = parse_id, value_name = "WORKER")]
        to: Option<u64>,
    },
    /// List handoffs in progress and failed ones; completed ones are deleted
    List {
        /// Only handoffs in progress
        #[arg(long, env = "GOSSIP_ACTIVE", value_parser = flag())]
        active: bool,
    },
    /// Show one handoff
    Show {
        /// Handoff id (see `gossip handoff list`)
        id: String,
    },
    /// Withdraw a handoff, or close the record of one that can no longer happen
    Rollback {
        /// Handoff id (see `gossip handoff list`)
        id: String,
    },
    /// List live workers, which can receive a shard
    Workers,
}

#[derive(Debug, Args)]
pub(crate) struct ShardArg {
    /// Run id (see `gossip run list`)
    #[arg(value_parser = parse_id)]
    pub(crate) run: u64,
    /// Shard id (see `gossip shard list RUN`)
    #[arg(value_parser = parse_id)]
    pub(crate) shard: u64,
}

/// Hides the values of environment variables in the help: they are noise, and may be secret.
fn hide_env_values(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| arg.hide_env_values(true)).mut_subcommands(hide_env_values)
}

/// Parses the environment variable of a flag: yes, true, on, 1, or their opposites.
fn flag() -> BoolishValueParser {
    BoolishValueParser::new()
}

/// Parses a non-zero number.
fn positive<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, &'static str> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::Zero => "must be 1 or more",
        IntErrorKind::PosOverflow => "number is too large",
        _ => "not a whole number of 1 or more",
    })
}

/// Parses an id in the form in which it is printed.
fn parse_id(text: &str) -> Result<u64, &'static str> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
    number.ok_or("an id has 16 hexadecimal digits; see `gossip run list` and `gossip shard list`")
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
