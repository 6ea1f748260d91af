//! Credentials from the services that containers and instances have beside them.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use serde_json::Value;

use super::{Keys, Link};
use crate::clock::Seconds;
use crate::environment::BucketEnvironment;
use crate::transport::Transport;

/// The service of containers, for a relative address.
const CONTAINER_HOST: &str = "169.254.170.2";
/// The service of instances. Elsewhere the address leads nowhere, or to a refusal.
const INSTANCE_HOST: &str = "169.254.169.254";

/// How long a service beside this process may take. A machine without one drops the packets.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long the token of an instance is used, in seconds: for these requests only.
const TOKEN_SECONDS: &str = "60";
/// The longest answer.
const ANSWER_LEN_MAX: usize = 64 << 10;

pub(super) async fn of_container(environment: &BucketEnvironment) -> Link {
    let relative = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let full = environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    let (is_tls, host, path) = match (relative, full) {
        (Some(path), _) => (false, CONTAINER_HOST.to_owned(), path.to_owned()),
        (None, Some(url)) => match split(url) {
            Some(parts) => parts,
            None => return Link::None("container (its URI is malformed)".to_owned()),
        },
        (None, None) => return Link::None("container (no URI is set)".to_owned()),
    };
    let file = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    // Read each time: the file is replaced before the token ends.
    let of_file = file.and_then(|file| fs::read_to_string(file).ok());
    let token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(str::to_owned).or(of_file);
    let headers: Vec<_> = token.iter().map(|token| ("authorization", token.trim())).collect();
    match get(is_tls, &host, "GET", &path, &headers).await.and_then(|text| parse(&text)) {
        Some(keys) => Link::Found(keys),
        None => Link::None("container (its endpoint gave none)".to_owned()),
    }
}

pub(super) async fn of_instance(environment: &BucketEnvironment) -> Link {
    if environment
        .get("AWS_EC2_METADATA_DISABLED")
        .is_some_and(|it| it.eq_ignore_ascii_case("true"))
    {
        return Link::None("instance metadata (disabled)".to_owned());
    }
    match instance_keys().await {
        Some(keys) => Link::Found(keys),
        None => Link::None("instance metadata (no role there)".to_owned()),
    }
}

async fn instance_keys() -> Option<Keys> {
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    let lifetime = [("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS)];
    let token = get(false, INSTANCE_HOST, "PUT", "/latest/api/token", &lifetime).await?;
    let headers = [("x-aws-ec2-metadata-token", token.trim())];
    let role = get(false, INSTANCE_HOST, "GET", ROLES, &headers).await?;
    let role = role.lines().next().filter(|role| !role.is_empty())?.to_owned();
    parse(&get(false, INSTANCE_HOST, "GET", &format!("{ROLES}{role}"), &headers).await?)
}

/// Splits `http://host:port/path`.
fn split(url: &str) -> Option<(bool, String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_tls = match scheme {
        "https" => true,
        // Keys in clear text only from a service of this machine.
        "http" if is_local(host) => false,
        _ => return None,
    };
    Some((is_tls, host.to_owned(), format!("/{path}")))
}

fn is_local(host: &str) -> bool {
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host).trim_matches(['[', ']']);
    let address = host.parse::<std::net::IpAddr>().ok();
    let services = [CONTAINER_HOST, "169.254.170.23", "fd00:ec2::23"];
    host == "localhost" || services.contains(&host) || address.is_some_and(|it| it.is_loopback())
}

/// Returns the text of a successful answer.
async fn get(
    is_tls: bool,
    host: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Option<String> {
    let transport = Arc::new(Transport::new(host, is_tls, None).ok()?);
    let mut request = Request::builder().method(method).uri(path).header("host", host);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).ok()?;
    let mut reply = transport.send(request, TIMEOUT).await.ok()?;
    let body = reply.whole(ANSWER_LEN_MAX).await.ok()?;
    reply.head.status.is_success().then(|| String::from_utf8(body).ok()).flatten()
}

fn parse(text: &str) -> Option<Keys> {
    let value: Value = serde_json::from_str(text).ok()?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let ends = text("Expiration").and_then(|ends| Seconds::parse_iso(&ends));
    Some(Keys::new(text("AccessKeyId")?, text("SecretAccessKey")?, text("Token"), ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_parsed_with_its_end() {
        let text = r#"{"Code": "Success", "AccessKeyId": "id", "SecretAccessKey": "s",
            "Token": "t", "Expiration": "2013-05-24T00:00:00Z"}"#;
        let keys = parse(text).unwrap();
        let ends = Some(Seconds(1_369_353_600));
        assert_eq!(keys, Keys::new("id".into(), "s".into(), Some("t".into()), ends));
        assert!(parse("{}").is_none() && parse("x").is_none());
    }

    #[test]
    fn keys_are_not_fetched_in_clear_text_over_a_network() {
        assert!(split("http://10.0.0.1/x").is_none());
        assert!(split("http://localhost:80/x").is_some());
        assert!(split("http://169.254.170.23/v1").is_some());
        assert_eq!(split("https://a/b").unwrap(), (true, "a".into(), "/b".into()));
    }
}
