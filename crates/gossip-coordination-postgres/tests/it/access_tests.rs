//! Passwords and TLS on real servers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gossip_coordination::store::{Key, Read, Store as _};
use gossip_coordination::{InfraError, StoreRefusal};
use gossip_coordination_postgres::{
    BlockingStore, ConnectError, PostgresConfig, PostgresTls, TlsFiles,
};
use gossip_testkit::test_support::{PostgresOptions, PostgresServer, ServerTls, TestDirectory};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::real_server::config_on;

/// An authority, its certificate in a file, and a server certificate for `localhost`.
fn authority(directory: &TestDirectory, name: &str) -> (PathBuf, ServerTls) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let server = params.signed_by(&key, &ca).unwrap();
    let file = directory.path().join(name);
    fs::write(&file, ca.pem()).unwrap();
    let (cert_pem, key_pem) = (server.pem(), key.serialize_pem());
    (file, ServerTls { cert_pem, key_pem, client_ca_pem: None })
}

fn verified(ca_file: PathBuf) -> PostgresTls {
    PostgresTls::Verified(TlsFiles { ca_file, identity: None, server_name: None })
}

fn works(config: &PostgresConfig) {
    let mut store = BlockingStore::connect(config).unwrap();
    store.read(vec![Read::Get(Key::SchemaVersion)]).unwrap();
}

fn error(config: &PostgresConfig) -> InfraError {
    match BlockingStore::connect(config) {
        Err(ConnectError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_is_verified_by_authority_and_name() {
    let directory = TestDirectory::new("postgres-tls");
    let (ca, tls) = authority(&directory, "ca.pem");
    let (other_ca, _) = authority(&directory, "other.pem");
    let server = PostgresServer::with_options(&PostgresOptions {
        tls: Some(tls),
        access: vec!["hostssl all all 127.0.0.1/32 trust".to_owned()],
        ..PostgresOptions::default()
    });
    let config = PostgresConfig { host: "localhost".to_owned(), ..config_on(&server) };
    works(&PostgresConfig { tls: verified(ca.clone()), ..config.clone() });
    // Another authority, another name, no TLS, no file.
    assert!(error(&PostgresConfig { tls: verified(other_ca), ..config.clone() }).is_retryable());
    let by_address = PostgresConfig { host: "127.0.0.1".to_owned(), ..config.clone() };
    error(&PostgresConfig { tls: verified(ca), ..by_address });
    error(&config);
    error(&PostgresConfig { tls: verified(directory.path().join("missing")), ..config });
}

/// A server whose certificate is refused, whatever authority the client has.
fn refused_certificate(what: &str, ca_pem: &str, tls: ServerTls) {
    let directory = TestDirectory::new("postgres-tls-refused");
    let ca = directory.path().join("ca.pem");
    fs::write(&ca, ca_pem).unwrap();
    let server = tls_server(tls);
    let config = PostgresConfig { host: "localhost".to_owned(), ..config_on(&server) };
    let refused = error(&PostgresConfig { tls: verified(ca), ..config });
    assert!(refused.is_retryable(), "{what}: {refused:?}");
}

fn tls_server(tls: ServerTls) -> PostgresServer {
    PostgresServer::with_options(&PostgresOptions {
        tls: Some(tls),
        access: vec!["hostssl all all 127.0.0.1/32 trust".to_owned()],
        ..PostgresOptions::default()
    })
}

#[test]
fn expired_certificate_is_refused() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(2019, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let (cert_pem, key_pem) = (params.signed_by(&key, &ca).unwrap().pem(), key.serialize_pem());
    refused_certificate("expired", &ca.pem(), ServerTls { cert_pem, key_pem, client_ca_pem: None });
}

#[test]
fn self_signed_certificate_is_refused() {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert_pem, key_pem) = (signed.cert.pem(), signed.signing_key.serialize_pem());
    let directory = TestDirectory::new("postgres-tls-authority");
    let (ca, _) = authority(&directory, "ca.pem");
    let ca_pem = fs::read_to_string(ca).unwrap();
    refused_certificate(
        "self-signed",
        &ca_pem,
        ServerTls { cert_pem, key_pem, client_ca_pem: None },
    );
}

/// Another authority signs the new certificate, so the client needs the file as it is now.
#[test]
fn rotated_certificate_is_picked_up_without_a_restart() {
    let directory = TestDirectory::new("postgres-tls-rotated");
    let (ca, tls) = authority(&directory, "ca.pem");
    let server = tls_server(tls);
    let config = PostgresConfig { host: "localhost".to_owned(), ..config_on(&server) };
    let config = PostgresConfig { tls: verified(ca.clone()), ..config };
    let mut store = BlockingStore::connect(&config).unwrap();
    let (next, tls) = authority(&directory, "next.pem");
    server.replace_tls(&tls);
    fs::rename(next, ca).unwrap();
    // The first reads may still find the connections that the server has ended.
    let read = |store: &mut BlockingStore| store.read(vec![Read::Get(Key::SchemaVersion)]);
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = read(&mut store) {
        assert!(Instant::now() < deadline, "{error}");
    }
}

#[test]
fn a_password_is_needed_and_never_shown() {
    let server = PostgresServer::with_options(&PostgresOptions {
        access: vec![
            "host all gossip 127.0.0.1/32 trust".to_owned(),
            "host all worker 127.0.0.1/32 scram-sha-256".to_owned(),
        ],
        ..PostgresOptions::default()
    });
    server.sql("CREATE ROLE worker LOGIN PASSWORD 'canary'");
    server.sql("GRANT CREATE ON DATABASE postgres TO worker");
    let directory = TestDirectory::new("postgres-password");
    let file = directory.path().join("password");
    fs::write(&file, "canary\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let config = PostgresConfig { user: "worker".to_owned(), ..config_on(&server) };
    works(&PostgresConfig { password_file: Some(file), ..config.clone() });
    let mut wrong = config.clone();
    wrong.environment.password = Some("canary, almost".to_owned());
    let refused = error(&wrong);
    assert!(
        matches!(refused, InfraError::Refused { why: StoreRefusal::NotPermitted, .. }),
        "{refused:?}"
    );
    for error in [refused, error(&config)] {
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
        assert!(!format!("{error} {error:?}").contains("worker"), "{error:?}");
    }
}
