//! The key under which secrets are hashed: in a file of the user's, made on first use.

use std::path::{Path, PathBuf};

use gossip::DEFAULT_TENANT;
use gossip::identity::TenantId;
use gossip::secrets::TenantSecretKey;

use crate::args::Global;
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::{key_file, store};

/// Reads the key of a command; the default file is made if it is missing.
pub(crate) fn load(
    global: &Global,
    named: Option<&Path>,
    console: &Console,
) -> Result<TenantSecretKey, Failure> {
    if let Some(path) = named {
        return read(path);
    }
    let path = default_path(global, store::tenant(global)?)?;
    let is_new = key_file::create_if_missing(&path).map_err(|error| {
        Failure::new(Code::Usage, format!("cannot make the secret key {}", path.display()))
            .why(error)
            .next("name a file: --secret-key-file FILE")
    })?;
    // A user who scans on two machines would otherwise get two sets of hashes without a word.
    if is_new {
        let path = path.display();
        console.note(&format!(
            "made the key under which secrets are hashed: {path}. Other machines need a copy"
        ));
    }
    read(&path)
}

/// Returns where the key of a tenant is.
fn default_path(global: &Global, tenant: TenantId) -> Result<PathBuf, Failure> {
    let directory = key_file::directory().ok_or_else(|| {
        Failure::new(Code::Usage, "no place for the secret key: HOME is not set")
            .next("name a file: --secret-key-file FILE")
    })?;
    let name = if global.tenant == DEFAULT_TENANT {
        "secret-key".to_owned()
    } else {
        // The name of a tenant need not be one of a file.
        let id: String = tenant.as_bytes()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("secret-key-{id}")
    };
    Ok(directory.join(name))
}

fn read(path: &Path) -> Result<TenantSecretKey, Failure> {
    key_file::read(path, "secret key").map(TenantSecretKey::from_bytes)
}
