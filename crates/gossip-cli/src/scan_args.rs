//! Arguments of `scan`, `findings` and `rules`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use gossip::secrets::Confidence;

use crate::args::{FailOn, RunArg, WorkArgs, flag, positive};
use crate::duration;

pub(crate) const SCAN_HELP: &str = "\
Sources: a directory (every file below it), git:REPO (the history of a repository), lines:FILE,
jsonl:FILE, csv:FILE. Several are scanned one after the other.

Examples:
  gossip scan .
  gossip scan git:. -o sarif > findings.sarif
  gossip scan . --baseline known.txt --fail-on findings      (exit code 10 if there are new ones)";

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    /// What to scan: a directory, git:REPO, lines:FILE, jsonl:FILE or csv:FILE
    #[arg(required = true, num_args = 1.., value_name = "SOURCE")]
    pub(crate) sources: Vec<OsString>,
    #[command(flatten)]
    pub(crate) detection: DetectionArgs,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    #[command(flatten)]
    pub(crate) run: ScanRunArgs,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// Settings of the detection; part of the run's identity.
#[derive(Debug, Args)]
#[command(next_help_heading = "Detection options")]
pub(crate) struct DetectionArgs {
    /// Add the rules of this file, replace and disable built-in ones; may be repeated
    #[arg(long, env = "GOSSIP_RULES", value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// Use the rules of --rules only
    #[arg(long, env = "GOSSIP_NO_BUILT_IN", value_parser = flag(), requires = "rules")]
    pub(crate) no_built_in: bool,
    /// Leave out rules that guess from names such as `password`
    #[arg(long, env = "GOSSIP_STRUCTURED_ONLY", value_parser = flag())]
    pub(crate) structured_only: bool,
    /// Search contents that are not text, too
    #[arg(long, env = "GOSSIP_BINARIES", value_parser = flag())]
    pub(crate) binaries: bool,
    /// Search the bytes of archives and compressed files, and not what they contain
    #[arg(long, env = "GOSSIP_NO_ARCHIVES", value_parser = flag())]
    pub(crate) no_archives: bool,
    /// Key under which secrets are hashed: 64 hexadecimal digits
    ///
    /// Default: a file in $XDG_CONFIG_HOME/gossip or ~/.config/gossip, made on first use. All
    /// machines of a run, and all runs that share a baseline, need the same key.
    #[arg(long, env = "GOSSIP_SECRET_KEY_FILE", value_name = "FILE")]
    pub(crate) secret_key_file: Option<PathBuf>,
}

/// Settings of the report; they may differ each time.
#[derive(Debug, Args)]
#[command(next_help_heading = "Report options")]
pub(crate) struct ReportArgs {
    /// Accept findings by path and rule [default: .gossip-allow.toml in the source]
    #[arg(long, env = "GOSSIP_ALLOW_LIST", value_name = "FILE")]
    pub(crate) allow_list: Option<PathBuf>,
    /// Accept the findings of this file, so that only new ones count
    #[arg(long, env = "GOSSIP_BASELINE", value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Write a baseline of all findings that are not accepted otherwise
    #[arg(long, env = "GOSSIP_WRITE_BASELINE", value_name = "FILE")]
    pub(crate) write_baseline: Option<PathBuf>,
    /// Leave out findings below this confidence
    #[arg(long, env = "GOSSIP_MIN_CONFIDENCE", value_enum, default_value = "low")]
    pub(crate) min_confidence: MinConfidence,
    /// Show accepted findings, too
    #[arg(long, env = "GOSSIP_SHOW_ACCEPTED", value_parser = flag())]
    pub(crate) show_accepted: bool,
    // No environment variable: one left set in a shell would print secrets where no user asked.
    /// Show whole secrets, read again from the source; on a terminal only
    #[arg(long)]
    pub(crate) show_secrets: bool,
}

/// The run of a scan.
#[derive(Debug, Args)]
#[command(next_help_heading = "Run options")]
pub(crate) struct ScanRunArgs {
    /// Skip hidden files and files that .gitignore and .ignore exclude
    #[arg(long, env = "GOSSIP_IGNORE", value_parser = flag())]
    pub(crate) ignore: bool,
    /// Follow symbolic links
    #[arg(long, env = "GOSSIP_FOLLOW_LINKS", value_parser = flag())]
    pub(crate) follow_links: bool,
    /// Lease duration; a dead worker's shards are reassigned after this time
    #[arg(long, env = "GOSSIP_LEASE", value_parser = duration::parse, default_value = "15s", value_name = "TIME")]
    pub(crate) lease: Duration,
    /// Attempts without progress before a shard is parked
    #[arg(long, env = "GOSSIP_RETRIES", default_value_t = 3, value_name = "N")]
    pub(crate) retries: u32,
    /// Initial number of shards, 1 to 10000 [default: 4 per job, at most 256]
    #[arg(long, env = "GOSSIP_SHARDS", value_name = "N", value_parser = positive::<NonZeroUsize>)]
    pub(crate) shards: Option<NonZeroUsize>,
    /// Scan again if the same scan has finished before, or its source has changed
    #[arg(long, env = "GOSSIP_RESTART", value_parser = flag())]
    pub(crate) restart: bool,
    /// Start even if another run of this source is unfinished
    #[arg(long, env = "GOSSIP_ALLOW_PARALLEL", value_parser = flag())]
    pub(crate) allow_parallel: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FindingsArgs {
    #[command(flatten)]
    pub(crate) run: RunArg,
    #[command(flatten)]
    pub(crate) report: ReportArgs,
    #[command(flatten)]
    pub(crate) detection: DetectionArgs,
    /// Exit with 10 if there are findings that are not accepted
    #[arg(long, env = "GOSSIP_FAIL_ON", value_enum, value_name = "WHAT")]
    pub(crate) fail_on: Option<FailOn>,
}

/// The lowest confidence that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MinConfidence {
    /// Guesses from names, too.
    Low,
    /// The shape of one vendor's token, or more.
    Medium,
    /// A distinctive shape, or a shape with proof.
    High,
}

impl From<MinConfidence> for Confidence {
    fn from(least: MinConfidence) -> Self {
        match least {
            MinConfidence::Low => Self::Low,
            MinConfidence::Medium => Self::Medium,
            MinConfidence::High => Self::High,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// List the detection rules
    List(RuleFiles),
    /// Show one rule
    Show {
        /// Id of the rule (see `gossip rules list`)
        id: String,
        #[command(flatten)]
        files: RuleFiles,
    },
    /// Check rule files: format, patterns, speed
    Check {
        /// Files to check, each with the built-in rules
        #[arg(required = true, num_args = 1.., value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Check that each rule finds samples of its own, plain and encoded
    Test {
        /// Ids of rules; default: all
        ids: Vec<String>,
        #[command(flatten)]
        files: RuleFiles,
    },
}

/// Rule files besides the built-in rules.
#[derive(Debug, Args)]
pub(crate) struct RuleFiles {
    /// Add the rules of this file, replace and disable built-in ones; may be repeated
    #[arg(long, env = "GOSSIP_RULES", value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
}
