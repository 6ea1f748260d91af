//! The store, by URL or by default, and who asks it.

use std::path::{Path, PathBuf};

use gossip::identity::TenantId;
use gossip::store::{Backend, StoreUrl};
use gossip::tenant_id;

use crate::args::Global;
use crate::failure::{Code, Failure};

/// Opens the store of a command, which is made if it is a file that is not there.
pub(crate) fn open(global: &Global) -> Result<Backend, Failure> {
    open_url(&url(global)?)
}

/// Opens the store of a command that makes no run. A file that was named and is not there holds
/// none: most likely its name was mistyped, and an empty store would hide that.
pub(crate) fn open_existing(global: &Global) -> Result<Backend, Failure> {
    let url = url(global)?;
    if let StoreUrl::Sqlite { path, .. } = &url
        && global.store.is_some()
        && is_missing(path)
    {
        return Err(Failure::new(Code::Store, "the store cannot be opened")
            .why(format!("{}: there is no such file", path.display()))
            .next(
                "check --store and GOSSIP_STORE; gossip exec and gossip run create make a store",
            ));
    }
    open_url(&url)
}

fn url(global: &Global) -> Result<StoreUrl, Failure> {
    match &global.store {
        Some(url) => url.parse().map_err(|error| {
            Failure::new(Code::Usage, "the URL of the store is not understood").why(error)
        }),
        None => Ok(StoreUrl::sqlite(default_path()?)),
    }
}

/// Whether a file is missing where it could be. If its directory is missing too, the store says so.
fn is_missing(path: &Path) -> bool {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    matches!(path.try_exists(), Ok(false)) && directory.is_none_or(Path::is_dir)
}

fn open_url(url: &StoreUrl) -> Result<Backend, Failure> {
    Backend::open(url).map_err(|error| {
        let failure = Failure::new(Code::Store, "the store cannot be opened").why(error);
        failure.next("check --store and GOSSIP_STORE, and that the store is up")
    })
}

/// The id of the tenant that a command names.
pub(crate) fn tenant(global: &Global) -> Result<TenantId, Failure> {
    tenant_id(&global.tenant).map_err(|error| Failure::new(Code::Usage, error.to_string()))
}

/// A file of the user's: the state directory of the XDG rules.
fn default_path() -> Result<PathBuf, Failure> {
    let directory =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = directory("XDG_STATE_HOME")
        .or_else(|| directory("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            Failure::new(Code::Usage, "there is no place for the store: HOME is not set")
                .next("say where: --store sqlite:PATH")
        })?;
    let directory = state.join("gossip");
    std::fs::create_dir_all(&directory).map_err(|error| {
        Failure::new(Code::Store, format!("{} cannot be made", directory.display()))
            .why(error)
            .next("say where the store is to be: --store sqlite:PATH")
    })?;
    Ok(directory.join("store.db"))
}
