//! The programs that campaigns run.

use std::path::PathBuf;

use crate::Outcome;

/// Returns the path of the `gossip` executable, which cargo puts beside the executable of this
/// process: `target/PROFILE/gossip`.
///
/// # Errors
///
/// If it was not built. Cargo builds the programs of its own package for a test, and no others, so
/// the error names the command that builds this one.
pub(crate) fn gossip_binary() -> Outcome<PathBuf> {
    let gossip = std::env::current_exe()?.with_file_name("gossip");
    match gossip.is_file() {
        true => Ok(gossip),
        false => {
            // The profile of this process is the one whose `gossip` is missing.
            let release = if cfg!(debug_assertions) { "" } else { " --release" };
            let build = format!("cargo build -p gossip-cli{release}");
            Err(format!("{} does not exist; run `{build}` first", gossip.display()).into())
        }
    }
}
