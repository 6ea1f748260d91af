//! The shared files of the tools of AWS: sections of `name = value`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Keys, Link};
use crate::environment::BucketEnvironment;

/// The profile without a name.
const DEFAULT: &str = "default";

pub(super) fn keys(environment: &BucketEnvironment, profile: Option<&str>) -> Link {
    let profile = profile.unwrap_or(DEFAULT);
    let credentials = path(environment, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    let config = path(environment, "AWS_CONFIG_FILE", ".aws/config");
    let places = [(credentials, profile.to_owned()), (config, section_of_config(profile))];
    for (path, section) in places.into_iter().filter_map(|(path, it)| Some((path?, it))) {
        let Ok(text) = fs::read_to_string(path) else { continue };
        let value = |name| value(&text, &section, name);
        if let (Some(id), Some(secret)) =
            (value("aws_access_key_id"), value("aws_secret_access_key"))
        {
            return Link::Found(Keys::new(id, secret, value("aws_session_token"), None));
        }
    }
    Link::None(format!("shared files (no keys in profile {profile})"))
}

pub(super) fn region(environment: &BucketEnvironment, profile: Option<&str>) -> Option<String> {
    let path = path(environment, "AWS_CONFIG_FILE", ".aws/config")?;
    let text = fs::read_to_string(path).ok()?;
    value(&text, &section_of_config(profile.unwrap_or(DEFAULT)), "region")
}

/// Returns the name of a profile's section, which differs between the two files.
fn section_of_config(profile: &str) -> String {
    if profile == DEFAULT { DEFAULT.to_owned() } else { format!("profile {profile}") }
}

fn path(environment: &BucketEnvironment, variable: &str, below_home: &str) -> Option<PathBuf> {
    let of_home = || Some(Path::new(environment.get("HOME")?).join(below_home));
    environment.get(variable).map(PathBuf::from).or_else(of_home)
}

/// Returns a value of a section; the last one counts.
fn value(text: &str, section: &str, name: &str) -> Option<String> {
    let (mut is_inside, mut found) = (false, None);
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(header) = trimmed.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or_default();
            let words: Vec<&str> = header.split_whitespace().collect();
            is_inside = words.join(" ") == section;
            continue;
        }
        // An indented line belongs to a nested setting.
        let is_setting = is_inside && !line.starts_with([' ', '\t', '#', ';']);
        if let Some((key, value)) = trimmed.split_once('=').filter(|_| is_setting)
            && key.trim() == name
        {
            found = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_from_the_section_of_the_profile() {
        let text =
            "[default]\nregion=a\n# region=x\n[profile  b]\nregion = c \ns3 =\n  region = d\n";
        assert_eq!(value(text, "default", "region").as_deref(), Some("a"));
        assert_eq!(value(text, "profile b", "region").as_deref(), Some("c"));
        assert_eq!(value(text, "profile c", "region"), None);
        assert_eq!(value(text, "profile b", "s3"), None);
    }
}
