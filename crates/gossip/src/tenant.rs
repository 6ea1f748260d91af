//! Tenants by name.

use gossip_contracts::identity::TenantId;
use thiserror::Error;

/// Longest name of a tenant in bytes: the name is the id.
pub const TENANT_NAME_MAX: usize = 32;

/// The tenant of programs and commands that name none.
pub const DEFAULT_TENANT: &str = "default";

/// Returns the id of the tenant of this name: its bytes, padded with zeros.
///
/// # Errors
///
/// The name is empty or longer than [`TENANT_NAME_MAX`] bytes.
pub fn tenant_id(name: &str) -> Result<TenantId, TenantNameError> {
    let mut id = [0; TENANT_NAME_MAX];
    // A longer name is refused and not cut: two names with one beginning would share a tenant.
    match id.get_mut(..name.len()) {
        Some(start) if !name.is_empty() => {
            start.copy_from_slice(name.as_bytes());
            Ok(TenantId::from_bytes(id))
        }
        Some(_) | None => Err(TenantNameError),
    }
}

/// A name that is no tenant's.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a tenant's name has 1 to {TENANT_NAME_MAX} bytes")]
pub struct TenantNameError;
