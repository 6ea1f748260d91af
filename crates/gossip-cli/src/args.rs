//! Command-line arguments.

use std::ffi::OsString;
use std::num::{IntErrorKind, NonZeroU32, NonZeroU64, NonZeroUsize, ParseIntError};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use gossip::coordination::RunName;
use gossip::runtime::StreamFormat;

use crate::duration;
use crate::halt::Halt;
use crate::help;
use crate::painter::ProgressMode;
use crate::reference::{IdStart, RunRef, id_start};
use crate::scan_args::{FindingsArgs, RulesCommand, SCAN_HELP, ScanArgs};
use crate::screen::style::Color;
use crate::store_args::StoreCommand;

/// Process every item of a large source, resume after any crash, and prove that none was missed.
///
/// Exit codes: 0 complete, 1 internal error or broken command, 2 usage error, 3 incomplete (items
/// failed or could not be read), 4 the run failed or was cancelled, 5 store error, 6 the store
/// needs a newer gossip, 10 complete with findings and --fail-on findings, 130 interrupted with
/// progress saved.
#[derive(Debug, Parser)]
#[command(name = "gossip", version = env!("GOSSIP_VERSION"), max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the arguments of this process.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let matches = help::command(help::asks_for_brief()).try_get_matches()?;
        Self::from_arg_matches(&matches)
    }
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Store: sqlite:PATH, etcd://HOST/PREFIX, postgres://USER@HOST/DB, memory:
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
    /// Colours on stderr; auto: on a terminal, unless NO_COLOR is set
    #[arg(
        long,
        env = "GOSSIP_COLOR",
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto"
    )]
    pub(crate) color: Color,
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
    /// Aligned columns, cut to the width of the terminal, or lines of text.
    #[value(alias = "text")]
    Table,
    /// A table with every column, not cut.
    Wide,
    /// One JSON value.
    Json,
    /// One JSON value per line.
    Jsonl,
    /// SARIF 2.1.0; findings only.
    Sarif,
}

impl Format {
    /// Returns whether the output is for people.
    pub(crate) const fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// Returns whether tables have every column.
    pub(crate) const fn is_wide(self) -> bool {
        matches!(self, Self::Wide)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command for every item of a source; repeat the same command to resume
    #[command(after_long_help = EXEC_HELP)]
    Exec(Box<ExecArgs>),
    /// Find leaked secrets in files, archives and git history
    #[command(after_long_help = SCAN_HELP)]
    Scan(Box<ScanArgs>),
    /// Show the findings of a scan, or of the commands of a run
    Findings(Box<FindingsArgs>),
    /// List, show, check and test the detection rules
    #[command(subcommand)]
    Rules(RulesCommand),
    /// Show a run as it is worked on, from anywhere; without RUN all unfinished runs
    Watch(WatchArgs),
    /// Show which parts of the source are done, leased, waiting or failed
    Map(MapArgs),
    /// Show the runs in a browser, and serve an API and metrics
    #[cfg(feature = "serve")]
    Serve(ServeArgs),
    /// Show in half a minute what happens when a worker is killed
    Demo(DemoArgs),
    /// Join a run from another process or machine, or list the workers
    Worker(Box<WorkerArgs>),
    /// Explain the state of a run, a shard or an item, and name the next command
    Why(WhyArgs),
    /// Check that this machine can work: store, disk, clock, permissions, programs
    Doctor,
    /// Verify a coverage certificate written by `gossip run export`; needs no store
    Verify(VerifyArgs),
    /// Create, show and control runs
    #[command(subcommand)]
    Run(RunCommand),
    /// Show and control the shards of a run
    #[command(subcommand)]
    Shard(ShardCommand),
    /// Show what happened to a run and its shards, and who did it
    Events(EventsArgs),
    /// List the items of a run that failed or could not be read, and why
    Failed(RunArg),
    /// Let failed items of a run be tried again
    Retry(RetryArgs),
    /// Hand shards over from one worker to another
    #[command(subcommand)]
    Handoff(HandoffCommand),
    /// Show and set what a tenant may use
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Operate the store itself
    #[command(subcommand)]
    Store(StoreCommand),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print a man page, or write all of them to a directory
    Man {
        /// Command whose page is printed [default: gossip]
        #[arg(value_name = "COMMAND")]
        words: Vec<String>,
        // No environment variable: `GOSSIP_TO` is that of certificates.
        /// Write the pages of all commands to this directory
        #[arg(long, value_name = "DIR", conflicts_with = "words")]
        to: Option<PathBuf>,
    },
}

const EXEC_HELP: &str = "\
Sources:
  DIR           every file below the directory
  lines:FILE    the lines of a file; also @FILE
  lines0:FILE   parts of a file that end with a zero byte
  jsonl:FILE    the rows of a JSON Lines file
  csv:FILE      the rows of a CSV file
  git:REPO      the contents of a git repository
  sqlite:FILE?table=T, postgres://USER@HOST/DATABASE?table=T
                the rows of a table, as JSON
  s3://BUCKET/PREFIX
                the objects of a bucket
  range:A..B    integers; A..=B with B
  -             the lines of standard input; with -0 its parts that end with a zero byte
  PATH PATH...  these files, and the files below these directories; also a quoted '*.txt'

Placeholders in COMMAND:
  {}      the item: a path as it was typed, a line, a row, a number
  {/}     its base name
  {//}    its directory
  {.}     it without its extension
  {#}     its number, for rows and integers
  {name}  a column of its row, for CSV and JSON Lines
Without a placeholder the item is appended.";

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    /// Print the shards and an estimate of the work, and write nothing
    #[arg(long, env = "GOSSIP_PLAN", value_parser = flag(), help_heading = "Run options")]
    pub(crate) plan: bool,
}

/// Source, command and settings of a run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Run options")]
pub(crate) struct JobArgs {
    /// Items to process: a directory, lines:FILE, jsonl:FILE, csv:FILE, range:A..B, - for stdin,
    /// @FILE for a list, several paths, or a quoted pattern
    #[arg(help_heading = None, value_name = "SOURCE", required_unless_present = "null")]
    pub(crate) source: Vec<OsString>,
    /// Items of stdin end with a zero byte, as find -print0 writes them
    #[arg(short = '0', long, env = "GOSSIP_NULL", value_parser = flag())]
    pub(crate) null: bool,
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
    /// Start the command once per job and send it items as lines: json (default) or lines
    #[arg(
        long,
        env = "GOSSIP_STREAM",
        num_args = 0..=1,
        require_equals = true,
        default_value = "no",
        default_missing_value = "json",
        hide_default_value = true,
        value_name = "FORMAT",
        value_parser = StreamChoice::parse
    )]
    pub(crate) stream: StreamChoice,
    /// Lease duration; a dead worker's shards are reassigned after this time
    #[arg(long, env = "GOSSIP_LEASE", value_parser = duration::parse, default_value = "15s", value_name = "TIME")]
    pub(crate) lease: Duration,
    /// Attempts without progress before a shard is parked
    #[arg(long, env = "GOSSIP_RETRIES", default_value_t = 3, value_name = "N")]
    pub(crate) retries: u32,
    /// Initial number of shards, 1 to 10000 [default: 4 per job, at most 256]
    #[arg(long, env = "GOSSIP_SHARDS", value_name = "N", value_parser = positive::<NonZeroUsize>)]
    pub(crate) shards: Option<NonZeroUsize>,
    /// Name of the run, for commands that expect a run; one unfinished run can have it
    #[arg(long, env = "GOSSIP_NAME", value_name = "NAME", value_parser = run_name)]
    pub(crate) name: Option<RunName>,
    /// Start a new run if the same command has finished before, or its source has changed
    #[arg(long, env = "GOSSIP_RESTART", value_parser = flag())]
    pub(crate) restart: bool,
    /// Start even if another run of this source is unfinished
    #[arg(long, env = "GOSSIP_ALLOW_PARALLEL", value_parser = flag())]
    pub(crate) allow_parallel: bool,
    /// Cancel an unfinished run of this source with other settings first
    #[arg(long, env = "GOSSIP_REPLACE", value_parser = flag(), conflicts_with = "allow_parallel")]
    pub(crate) replace: bool,
}

/// How a command that is kept running receives items; none starts one per batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamChoice(pub(crate) Option<StreamFormat>);

impl StreamChoice {
    /// Parses a format. The variable of the flag may also hold a word for yes or no.
    fn parse(text: &str) -> Result<Self, &'static str> {
        match text.to_ascii_lowercase().as_str() {
            "json" | "yes" | "y" | "true" | "t" | "on" | "1" => Ok(Self(Some(StreamFormat::Json))),
            "lines" => Ok(Self(Some(StreamFormat::Lines))),
            "no" | "n" | "false" | "f" | "off" | "0" => Ok(Self(None)),
            _ => Err("must be json or lines"),
        }
    }
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub(crate) struct WorkerArgs {
    /// Run to join: its id, the first digits of its id, its name, or @last
    #[arg(value_parser = RunRef::parse, required = true)]
    pub(crate) run: Option<RunRef>,
    #[command(subcommand)]
    pub(crate) other: Option<WorkerCommand>,
    /// Run the command that the store has for the run, also if no job key of this user signed it
    #[arg(long, env = "GOSSIP_ALLOW_COMMAND", value_parser = flag(), conflicts_with = "command")]
    pub(crate) allow_command: bool,
    /// Command to use instead of the run's own, after --
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the workers with their hosts, shards and rates
    List(WorkerListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct WorkerListArgs {
    /// How long to sample the runs to measure rates; 0s: do not
    #[arg(long, env = "GOSSIP_SAMPLE", value_parser = duration::parse, default_value = "1s", value_name = "TIME")]
    pub(crate) sample: Duration,
    /// Also list all workers that are gone; a table has the last 3 of them otherwise
    #[arg(long, env = "GOSSIP_ALL", value_parser = flag())]
    pub(crate) all: bool,
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
        default_value = "100000",
        value_name = "N",
        value_parser = positive::<NonZeroU64>
    )]
    pub(crate) checkpoint_keys: NonZeroU64,
    /// Save progress after this time; of items that take 10 ms or more sooner, while that is cheap
    #[arg(long, env = "GOSSIP_CHECKPOINT_EVERY", value_parser = duration::parse, default_value = "1s", value_name = "TIME")]
    pub(crate) checkpoint_every: Duration,
    /// Pass on the output of commands as they write it, instead of item by item
    #[arg(long, env = "GOSSIP_UNGROUP", value_parser = flag())]
    pub(crate) ungroup: bool,
    /// Begin each line of output with the item of its command
    #[arg(long, env = "GOSSIP_TAG", value_parser = flag(), conflicts_with = "ungroup")]
    pub(crate) tag: bool,
    /// Let the commands use this terminal, for input too; one at a time (-j 1)
    #[arg(long, env = "GOSSIP_TTY", value_parser = flag(), conflicts_with_all = ["ungroup", "tag"])]
    pub(crate) tty: bool,
    /// Exit statuses that mean: done [default: 0]
    #[arg(long, env = "GOSSIP_OK_STATUS", value_name = "STATUS,...", value_delimiter = ',')]
    pub(crate) ok_status: Vec<u8>,
    /// Exit status that means: done, and something was found
    ///
    /// With --stream the command reports findings in its replies instead:
    /// {"type":"done","id":7,"findings":2,"message":"TEXT"}. `gossip findings RUN` lists them.
    #[arg(long, env = "GOSSIP_FOUND_STATUS", value_name = "STATUS")]
    pub(crate) found_status: Option<u8>,
    /// Stop after failures: soon,fail=N or now,fail=N; N items or N%
    #[arg(long, env = "GOSSIP_HALT", value_name = "WHEN,fail=N", value_parser = Halt::parse)]
    pub(crate) halt: Option<Halt>,
    /// Exit with 10 if the run is complete and any worker reported findings
    #[arg(long, env = "GOSSIP_FAIL_ON", value_enum, value_name = "WHAT")]
    pub(crate) fail_on: Option<FailOn>,
    /// How long to wait for a store that is unreachable or full; 0s: do not wait
    #[arg(long, env = "GOSSIP_STORE_PATIENCE", value_parser = duration::parse, default_value = "10m", value_name = "TIME")]
    pub(crate) store_patience: Duration,
    /// How to show progress on stderr
    #[arg(long, env = "GOSSIP_PROGRESS", value_enum, value_name = "MODE", default_value = "auto")]
    pub(crate) progress: ProgressMode,
    /// Do not split busy shards for idle workers
    #[arg(long, env = "GOSSIP_NO_SPLIT", value_parser = flag())]
    pub(crate) no_split: bool,
}

#[cfg(feature = "serve")]
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on; other than loopback needs --token-file
    #[arg(
        long,
        env = "GOSSIP_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "127.0.0.1:7717"
    )]
    pub(crate) listen: std::net::SocketAddr,
    /// Refuse every change [default: only if the address is not loopback]
    #[arg(
        long,
        env = "GOSSIP_READ_ONLY",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) read_only: Option<bool>,
    /// File with a line `read TOKEN` or `operate TOKEN` for each token; default: a new token
    #[arg(long, env = "GOSSIP_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Name under which the server may be addressed, such as that of a proxy; repeatable
    #[arg(long, env = "GOSSIP_ALLOW_HOST", value_name = "HOST", value_delimiter = ',')]
    pub(crate) allow_host: Vec<String>,
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
pub(crate) enum RunCommand {
    /// Create a run without working on it and print its id; `gossip worker` joins it
    Create(Box<JobArgs>),
    /// List runs, newest first; -o wide shows every column
    List {
        /// Only unfinished runs
        #[arg(long, env = "GOSSIP_ACTIVE", value_parser = flag())]
        active: bool,
        /// How long to sample runs that are worked on to estimate the time left; 0s: do not
        #[arg(long, env = "GOSSIP_SAMPLE", value_parser = duration::parse, default_value = "1s", value_name = "TIME")]
        sample: Duration,
    },
    /// Show one run with its progress and estimated time left
    Show {
        #[command(flatten)]
        run: RunArg,
        /// How long to sample an active run to estimate the time left; 0s: do not estimate
        #[arg(long, env = "GOSSIP_SAMPLE", value_parser = duration::parse, default_value = "2s", value_name = "TIME")]
        sample: Duration,
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
        /// Write one page for people: verdict, map, gaps, counts, command, times, hashes
        #[arg(long, env = "GOSSIP_HTML", value_name = "FILE")]
        html: Option<PathBuf>,
        /// Leave the command out: its arguments may hold secrets
        #[arg(long, env = "GOSSIP_NO_COMMAND_IN_PROOF", value_parser = flag())]
        no_command_in_proof: bool,
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
pub(crate) struct WatchArgs {
    /// Run: its id, the first digits of its id, its name, or @last
    #[arg(value_parser = RunRef::parse)]
    pub(crate) run: Option<RunRef>,
}

#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    #[command(flatten)]
    pub(crate) run: RunArg,
    /// Write a drawing to this file instead
    #[arg(long, env = "GOSSIP_SVG", value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    // Only the demo itself starts its workers.
    #[arg(long, hide = true, value_name = "DIRECTORY")]
    pub(crate) worker: Option<PathBuf>,
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
pub(crate) struct WhyArgs {
    /// Run: its id, the first digits of its id, its name, or @last [default: @last]
    #[arg(value_parser = RunRef::parse)]
    pub(crate) run: Option<RunRef>,
    /// Item of the run: a path, a number, the text of a line, or FILE:LINE
    #[arg(conflicts_with = "shard")]
    pub(crate) item: Option<OsString>,
    // No environment variable: `GOSSIP_SHARD` is set for handlers.
    /// Shard of the run: its id or the first digits of it
    #[arg(long, value_name = "SHARD", value_parser = id_start)]
    pub(crate) shard: Option<IdStart>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArg {
    /// Run: its id, the first digits of its id, its name, or @last
    #[arg(value_parser = RunRef::parse)]
    pub(crate) run: RunRef,
}

#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    pub(crate) run: RunArg,
    /// Print new events until the run ends
    #[arg(short, long, env = "GOSSIP_FOLLOW", value_parser = flag())]
    pub(crate) follow: bool,
    /// Leave out older events: a duration such as 10m, or a time in RFC 3339, UTC
    #[arg(long, env = "GOSSIP_SINCE", value_name = "TIME", value_parser = duration::since)]
    pub(crate) since: Option<duration::Since>,
}

#[derive(Debug, Args)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    pub(crate) run: RunArg,
    /// Items, as typed or as `gossip failed` names them: a path, FILE:LINE, the text of a line
    #[arg(
        value_name = "ITEM",
        required_unless_present_any = ["all", "status"],
        conflicts_with_all = ["all", "status"]
    )]
    pub(crate) items: Vec<OsString>,
    /// All failed items
    #[arg(long, conflicts_with = "status")]
    pub(crate) all: bool,
    /// The items whose command exited with this status
    #[arg(long, value_name = "N")]
    pub(crate) status: Option<i32>,
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
        /// Shard: its id or the first digits of it (see `gossip shard list RUN`)
        #[arg(value_parser = id_start, required_unless_present = "all")]
        shard: Option<IdStart>,
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
        /// Receiving worker: its id or the first digits of it [default: any idle worker]
        #[arg(long, env = "GOSSIP_TO_WORKER", value_parser = id_start, value_name = "WORKER")]
        to: Option<IdStart>,
    },
    /// List handoffs in progress and failed ones; completed ones are deleted
    List {
        /// Only handoffs in progress
        #[arg(long, env = "GOSSIP_ACTIVE", value_parser = flag())]
        active: bool,
    },
    /// Show one handoff
    Show {
        /// Handoff: its id, or the short one of `gossip handoff list`
        id: String,
    },
    /// Withdraw a handoff, or close the record of one that can no longer happen
    Rollback {
        /// Handoff: its id, or the short one of `gossip handoff list`
        id: String,
    },
    /// List live workers, which can receive a shard
    Workers,
}

#[derive(Debug, Args)]
pub(crate) struct ShardArg {
    /// Run: its id, the first digits of its id, its name, or @last
    #[arg(value_parser = RunRef::parse)]
    pub(crate) run: RunRef,
    /// Shard: its id or the first digits of it (see `gossip shard list RUN`)
    #[arg(value_parser = id_start)]
    pub(crate) shard: IdStart,
}

/// Parses the environment variable of a flag: yes, true, on, 1, or their opposites.
pub(crate) fn flag() -> BoolishValueParser {
    BoolishValueParser::new()
}

/// Parses a non-zero number.
pub(crate) fn positive<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, &'static str> {
    // The messages of the parser say nothing about zero, and clap shows them as they are.
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::Zero => "must be 1 or more",
        IntErrorKind::PosOverflow => "number is too large",
        _ => "not a whole number of 1 or more",
    })
}

/// Parses the name of a run.
fn run_name(text: &str) -> Result<RunName, String> {
    RunName::try_new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
