//! Opens the store, by URL or at its default path, and resolves the tenant.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use gossip::identity::TenantId;
use gossip::postgres::PostgresEnvironment;
use gossip::runtime::CommandFinding;
use gossip::store::{Backend, OpenStoreError, StoreUrl};
use gossip::tenant_id;

use crate::args::Global;
use crate::failure::{Code, Failure};

/// The variable with the password of the user of `etcd://`.
const ETCD_PASSWORD: &str = "GOSSIP_ETCD_PASSWORD";

/// Opens the store of a command; a missing file is created.
pub(crate) fn open(global: &Global) -> Result<Backend, Failure> {
    open_url(&url(global)?)
}

/// Opens the store of a command whose results are stored; a missing file is created.
pub(crate) fn open_for_results(global: &Global) -> Result<Backend, Failure> {
    let url = url(global)?;
    if matches!(url, StoreUrl::Etcd(_)) {
        return Err(Failure::new(Code::Usage, "this store cannot keep findings")
            .why("etcd holds all of its data in memory; findings could fill it for every tenant")
            .next("use another store: --store sqlite:PATH or --store postgres://USER@HOST/DB"));
    }
    open_url(&url)
}

/// Bytes of the output of a command with findings that etcd stores: the first lines of most
/// matches. It holds all of its data in memory, which the findings of one run must not fill.
const FOUND_TEXT_ETCD: usize = 256;

/// Returns how many bytes of the output of a command with findings are stored with its item.
pub(crate) fn found_text_max(global: &Global) -> usize {
    let is_etcd = matches!(url(global), Ok(StoreUrl::Etcd(_)));
    if is_etcd { FOUND_TEXT_ETCD } else { CommandFinding::TEXT_MAX }
}

/// Opens the store of a command that creates no run. A missing file is an error if it was named:
/// its name is probably mistyped, and an empty store would hide that.
pub(crate) fn open_existing(global: &Global) -> Result<Backend, Failure> {
    let url = url(global)?;
    if let StoreUrl::Sqlite { path, .. } = &url
        // The default path is created by the first command, so that it need not exist.
        && global.store.is_some()
        && is_missing(path)
    {
        return Err(Failure::new(Code::Store, "cannot open the store")
            .why(format!("{}: no such file", path.display()))
            .next("check --store and GOSSIP_STORE; gossip exec creates a new store"));
    }
    open_url(&url)
}

/// Returns the path of the store if it is a file that is missing.
pub(crate) fn missing_file(global: &Global) -> Option<String> {
    match url(global).ok()? {
        StoreUrl::Sqlite { path, .. } if matches!(path.try_exists(), Ok(false)) => {
            Some(path.display().to_string())
        }
        _ => None,
    }
}

/// Returns the URL of the store of a command.
pub(crate) fn url(global: &Global) -> Result<StoreUrl, Failure> {
    match &global.store {
        Some(url) => {
            let url = url.parse::<StoreUrl>();
            let url =
                url.map_err(|error| Failure::new(Code::Usage, "invalid store URL").why(error))?;
            // From the environment, because other users can read arguments.
            let etcd_password = std::env::var(ETCD_PASSWORD).ok();
            let url = url.with_etcd_password(etcd_password.filter(|value| !value.is_empty()));
            Ok(url.with_postgres_environment(postgres_environment()))
        }
        None => Ok(StoreUrl::sqlite(default_path()?)),
    }
}

/// Returns the places in which libpq looks for a password.
pub(crate) fn postgres_environment() -> PostgresEnvironment {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
    PostgresEnvironment {
        password: std::env::var("PGPASSWORD").ok(),
        password_file: std::env::var_os("PGPASSFILE").map(PathBuf::from).or_else(home),
    }
}

/// Returns whether a file is missing in an existing directory. The store reports a missing
/// directory itself.
fn is_missing(path: &Path) -> bool {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    matches!(path.try_exists(), Ok(false)) && directory.is_none_or(Path::is_dir)
}

fn open_url(url: &StoreUrl) -> Result<Backend, Failure> {
    Backend::open(url).map_err(|error| {
        // Its own exit code: a script can upgrade the program and repeat the command.
        if let OpenStoreError::NewerFormat { found } = error {
            return Failure::newer_store(found);
        }
        let failure = Failure::new(Code::Store, "cannot open the store").why(error);
        failure.next("check --store and GOSSIP_STORE, and that the store is running")
    })
}

/// Returns the id of the tenant of a command.
pub(crate) fn tenant(global: &Global) -> Result<TenantId, Failure> {
    tenant_id(&global.tenant).map_err(|error| Failure::new(Code::Usage, error.to_string()))
}

/// Returns the default path, in the state directory.
fn default_path() -> Result<PathBuf, Failure> {
    Ok(state_directory()?.join("store.db"))
}

/// Creates a directory, and those above it that are missing, for this user only. Existing ones keep
/// their modes.
pub(crate) fn create_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Returns the directory of gossip in the XDG state directory; creates it.
pub(crate) fn state_directory() -> Result<PathBuf, Failure> {
    let directory =
        // The XDG specification says that relative paths are ignored.
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = directory("XDG_STATE_HOME")
        .or_else(|| directory("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            Failure::new(Code::Usage, "no state directory: HOME is not set")
                .next("set HOME or XDG_STATE_HOME; a store can be given with --store sqlite:PATH")
        })?;
    let directory = state.join("gossip");
    create_private(&directory).map_err(|error| {
        Failure::new(Code::Store, format!("cannot create {}", directory.display()))
            .why(error)
            .next("set XDG_STATE_HOME, or give another store: --store sqlite:PATH")
    })?;
    Ok(directory)
}
