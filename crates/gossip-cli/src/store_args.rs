//! Arguments of `store`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::args::flag;
use crate::duration;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Create a store, and declare its durability
    Init(InitArgs),
    /// Show size, rows and state of a PostgreSQL store
    Stats,
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
pub(crate) struct InitArgs {
    /// PostgreSQL: whether a crash or a failover may lose acknowledged commits
    #[arg(long, env = "GOSSIP_DURABILITY", value_name = "WHICH")]
    pub(crate) durability: Option<Durability>,
}

/// What the operator declares about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// They may be lost; fence floors are raised after each crash and failover
    Local,
    /// None is lost; fence floors stay
    Replicated,
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
