//! What the caller passes from the environment of its process.

use std::fmt;

/// The variables that are read.
const NAMES: [&str; 16] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_EC2_METADATA_DISABLED",
    "HOME",
];

/// The values of some variables, under the names that the tools of AWS use.
#[derive(Clone, Default)]
pub struct BucketEnvironment {
    values: [Option<String>; NAMES.len()],
}

impl BucketEnvironment {
    /// Takes the variables that sources of buckets read: credentials, profile, region, endpoint.
    #[must_use]
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name: &str| lookup(name).filter(|value| !value.is_empty());
        Self { values: NAMES.map(value) }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let at = NAMES.iter().position(|known| *known == name);
        debug_assert!(at.is_some(), "every variable that is read is in the list");
        self.values.get(at?)?.as_deref()
    }
}

// Which are set: values may be secrets.
impl fmt::Debug for BucketEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = NAMES.iter().zip(&self.values).filter(|(_, value)| value.is_some());
        f.debug_set().entries(set.map(|(name, _)| name)).finish()
    }
}
