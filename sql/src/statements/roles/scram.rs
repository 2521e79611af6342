//! Passwords as SCRAM-SHA-256 verifiers (RFC 5802, RFC 7677): the data with which the server checks
//! a password; the password cannot be computed from it.

use crate::backends::random::RandomSource;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use strandline_base::{Error, Result};

/// How often the hash is applied.
pub const ITERATIONS: u32 = 4096;
/// Bytes of a salt.
const SALT_BYTES: usize = 16;
/// How verifiers begin.
const METHOD: &str = "SCRAM-SHA-256";

/// A stored password.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    /// how often the hash is applied
    pub iterations: u32,
    /// what is mixed into the password
    pub salt: Vec<u8>,
    /// checks the client's proof
    pub stored_key: [u8; 32],
    /// proves that the server knows the verifier
    pub server_key: [u8; 32],
}

impl std::fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScramVerifier")
    }
}

fn keyed_hash(key: &[u8], parts: &[&[u8]]) -> Result<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .map_err(|_| Error::internal("a key of HMAC may have any length"))?;
    parts.iter().for_each(|part| mac.update(part));
    Ok(mac.finalize().into_bytes().into())
}

impl ScramVerifier {
    /// The verifier of `password` with a new salt.
    pub fn new(password: &str, random: &dyn RandomSource) -> Result<Self> {
        let mut salt = vec![0; SALT_BYTES];
        random.fill(&mut salt);
        Self::with_salt(password, salt, ITERATIONS)
    }

    /// The verifier of `password` with a given salt.
    pub fn with_salt(password: &str, salt: Vec<u8>, iterations: u32) -> Result<Self> {
        // As PostgreSQL does: what SASLprep refuses is taken as it is.
        let prepared = stringprep::saslprep(password);
        let password = prepared.as_deref().unwrap_or(password).as_bytes();
        let mut step = keyed_hash(password, &[&salt, &1u32.to_be_bytes()])?;
        let mut salted = step;
        for _ in 1..iterations {
            step = keyed_hash(password, &[&step])?;
            salted
                .iter_mut()
                .zip(step)
                .for_each(|(all, one)| *all ^= one);
        }
        let client_key = keyed_hash(&salted, &[b"Client Key"])?;
        Ok(Self {
            iterations,
            salt,
            stored_key: Sha256::digest(client_key).into(),
            server_key: keyed_hash(&salted, &[b"Server Key"])?,
        })
    }

    /// As it is stored and as PostgreSQL writes it.
    pub fn to_text(&self) -> String {
        format!(
            "{METHOD}${}:{}${}:{}",
            self.iterations,
            STANDARD.encode(&self.salt),
            STANDARD.encode(self.stored_key),
            STANDARD.encode(self.server_key)
        )
    }

    /// The verifier that a text is; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, keys) = text
            .strip_prefix(METHOD)?
            .strip_prefix('$')?
            .split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |text: &str| <[u8; 32]>::try_from(STANDARD.decode(text).ok()?).ok();
        Some(Self {
            iterations: iterations.parse().ok().filter(|n| *n > 0)?,
            salt: STANDARD.decode(salt).ok()?,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }

    /// Whether `password` is the right one; takes the same time for every wrong one.
    pub fn accepts(&self, password: &str) -> Result<bool> {
        let other = Self::with_salt(password, self.salt.clone(), self.iterations)?;
        let differing = self.stored_key.iter().zip(other.stored_key);
        Ok(differing.fold(0, |all, (a, b)| all | (a ^ b)) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifiers_are_postgresql_s() {
        // Made by PostgreSQL 15: ALTER ROLE … PASSWORD 'pencil'.
        let text = include_str!("scram_of_pencil.txt").trim();
        let verifier = ScramVerifier::parse(text).expect("a verifier");
        assert_eq!(verifier.to_text(), text);
        assert!(verifier.accepts("pencil").expect("checked"));
        assert!(!verifier.accepts("Pencil").expect("checked"));
    }

    #[test]
    fn what_is_no_verifier_is_none() {
        for text in [
            "",
            "md5abc",
            "SCRAM-SHA-256$0:AA==$AA==:AA==",
            "SCRAM-SHA-256$4096:AA==$x:y",
        ] {
            assert_eq!(ScramVerifier::parse(text), None, "{text}");
        }
    }
}
