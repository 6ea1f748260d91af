//! Credentials by the chain that the tools of AWS use, refreshed before they end.
//!
//! 1. `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`;
//! 2. a profile of the shared files `~/.aws/credentials` and `~/.aws/config`;
//! 3. the endpoint of a container (`AWS_CONTAINER_CREDENTIALS_…_URI`);
//! 4. the metadata service of an instance.
//!
//! The first place that has credentials counts. They are held in memory only.

mod file;
mod metadata;

use std::fmt;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::clock::Seconds;
use crate::environment::BucketEnvironment;

/// Credentials are replaced so many seconds before they end: a request that is signed now may be
/// checked by a server whose clock is ahead.
const REFRESH_BEFORE: i64 = 300;

/// An access key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    id: String,
    secret: String,
    token: Option<String>,
    ends: Option<Seconds>,
}

impl Keys {
    pub(crate) const fn new(
        id: String,
        secret: String,
        token: Option<String>,
        ends: Option<Seconds>,
    ) -> Self {
        Self { id, secret, token, ends }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    fn is_fresh(&self, now: Seconds) -> bool {
        self.ends.is_none_or(|ends| now.0 + REFRESH_BEFORE < ends.0)
    }
}

// Nothing of it.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

/// Where credentials come from, and those in use.
pub(crate) struct Chain {
    environment: BucketEnvironment,
    profile: Option<String>,
    is_anonymous: bool,
    cached: Mutex<Option<Arc<Keys>>>,
}

/// What one place of the chain said.
enum Link {
    Found(Keys),
    /// It has none, for this reason.
    None(String),
}

impl Chain {
    pub(crate) fn new(
        environment: BucketEnvironment,
        profile: Option<String>,
        is_anonymous: bool,
    ) -> Self {
        let profile = profile.or_else(|| environment.get("AWS_PROFILE").map(str::to_owned));
        Self { environment, profile, is_anonymous, cached: Mutex::default() }
    }

    /// Returns credentials; `None` if requests are not signed.
    ///
    /// The error names each place that was tried, and why it has none.
    pub(crate) async fn keys(&self) -> Result<Option<Arc<Keys>>, String> {
        if self.is_anonymous {
            return Ok(None);
        }
        // Held while they are fetched: other requests wait for the same ones.
        let mut cached = self.cached.lock().await;
        if let Some(keys) = cached.as_ref().filter(|keys| keys.is_fresh(Seconds::now())) {
            return Ok(Some(Arc::clone(keys)));
        }
        let found = self.fetch().await;
        if let (Err(_), Some(keys)) = (&found, cached.as_ref()) {
            // The service is out of reach: the present ones may still be accepted for a while.
            return Ok(Some(Arc::clone(keys)));
        }
        let keys = Arc::new(found?);
        *cached = Some(Arc::clone(&keys));
        Ok(Some(keys))
    }

    /// Forgets credentials that a server refused.
    pub(crate) async fn refuse(&self, refused: &Arc<Keys>) {
        let mut cached = self.cached.lock().await;
        if cached.as_ref().is_some_and(|keys| keys == refused) {
            *cached = None;
        }
    }

    /// Returns the region of the environment or of the profile.
    pub(crate) fn region(&self) -> Option<String> {
        let names = ["AWS_REGION", "AWS_DEFAULT_REGION"];
        let set = names.iter().find_map(|name| self.environment.get(name)).map(str::to_owned);
        set.or_else(|| file::region(&self.environment, self.profile.as_deref()))
    }

    async fn fetch(&self) -> Result<Keys, String> {
        let mut tried = Vec::new();
        for link in [of_variables(&self.environment), self.of_file()] {
            match link {
                Link::Found(keys) => return Ok(keys),
                Link::None(why) => tried.push(why),
            }
        }
        match metadata::of_container(&self.environment).await {
            Link::Found(keys) => return Ok(keys),
            Link::None(why) => tried.push(why),
        }
        match metadata::of_instance(&self.environment).await {
            Link::Found(keys) => return Ok(keys),
            Link::None(why) => tried.push(why),
        }
        Err(format!(
            "no credentials; tried {}. For a public bucket add anonymous=yes",
            tried.join(", ")
        ))
    }

    fn of_file(&self) -> Link {
        file::keys(&self.environment, self.profile.as_deref())
    }
}

fn of_variables(environment: &BucketEnvironment) -> Link {
    let get = |name| environment.get(name).map(str::to_owned);
    match (get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY")) {
        (Some(id), Some(secret)) => {
            Link::Found(Keys::new(id, secret, get("AWS_SESSION_TOKEN"), None))
        }
        (Some(_), None) => Link::None("environment (AWS_SECRET_ACCESS_KEY is not set)".to_owned()),
        (None, _) => Link::None("environment (AWS_ACCESS_KEY_ID is not set)".to_owned()),
    }
}
