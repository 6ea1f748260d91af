//! Why a scan could not be performed.

use gossip_contracts::connector::ConnectorError;
use gossip_coordination::GetRunError;
use gossip_scanner_runtime::connectors::{RegisterError, SourceError};
use gossip_scanner_runtime::exec::TemplateError;
use gossip_scanner_runtime::{Broken, ReadJobError, RunWorkerError, StartError};
use thiserror::Error;

use crate::secrets::ReportError;
use crate::store::{OpenStoreError, StoreUrlError};
use crate::tenant::TenantNameError;

/// Why a scan could not be performed. Finished items are recorded in any case.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScanError {
    /// No store was set.
    #[error("the scan has no store; set one, as in .store(\"sqlite:state.db\")")]
    NoStore,
    /// The URL of the store cannot be parsed.
    #[error(transparent)]
    StoreUrl(#[from] StoreUrlError),
    /// The store cannot be opened.
    #[error("the store cannot be opened: {0}")]
    Store(#[from] OpenStoreError),
    /// The store has no room for results.
    #[error("the store keeps no findings; use sqlite:PATH or postgres://USER@HOST/DB")]
    NoResults,
    /// The findings cannot be read.
    #[error(transparent)]
    Findings(#[from] ReportError),
    /// The tenant's name is invalid.
    #[error(transparent)]
    Tenant(#[from] TenantNameError),
    /// A connector cannot be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The source cannot be parsed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The source cannot be opened.
    #[error("the source cannot be opened: {0}")]
    Connect(ConnectorError),
    /// The command cannot be run for keys.
    #[error(transparent)]
    Command(#[from] TemplateError),
    /// The program of the command does not exist.
    #[error(transparent)]
    Program(Broken),
    /// The run can be neither found nor created.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The job of the run to join cannot be read.
    #[error(transparent)]
    Job(#[from] ReadJobError),
    /// The run to join performs no command, so only the program that created it can.
    #[error("the run has no command: the program that created it processes its keys")]
    NoCommand,
    /// The command of the run to join is not signed by the key of the caller.
    #[error(
        "its command comes from the store and is not signed by the job key of this worker; \
         everyone who can write the store could have put it there"
    )]
    UnsignedCommand,
    /// The run cannot be read.
    #[error(transparent)]
    Run(#[from] GetRunError),
    /// The worker stopped.
    #[error(transparent)]
    Worker(#[from] RunWorkerError),
}
