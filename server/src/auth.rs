//! Who may connect: SCRAM-SHA-256 against stored verifiers.
//!
//! A user that does not exist goes through the same exchange as one that does, with a salt that is
//! always the same for its name and a verifier that no password fits, so that a client cannot tell
//! the two apart. What is compared is a hash of what the client proves to know; how far it agrees
//! with the stored one tells nothing about a password.

use crate::message::Fields;
use crate::report::protocol_violation;
use pgwire::api::auth::sasl::scram::{
    ScramSecret, ScramServerAuth, ScramServerAuthWaitingForClientFinal, gen_salted_password,
};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use strandline::{Error, Result, SqlState};

/// What is stored of a password (RFC 5802).
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    /// how often the password is hashed
    pub iterations: u32,
    /// what makes equal passwords different
    pub salt: Vec<u8>,
    /// the hash of the client's key
    pub stored_key: Vec<u8>,
    /// the key with which the server proves that it knows the verifier
    pub server_key: Vec<u8>,
}

impl Verifier {
    /// The verifier of `password`.
    pub fn of(password: &str, salt: &[u8], iterations: u32) -> Self {
        let rounds = iterations as usize;
        let salted = gen_salted_password(password, salt, rounds);
        match ScramSecret::verifier_from_salted_password(salt.to_vec(), salted, rounds) {
            ScramSecret::Verifier {
                salt,
                stored_key,
                server_key,
                ..
            } => Self {
                iterations,
                salt,
                stored_key,
                server_key,
            },
            ScramSecret::SaltedPassword { .. } => Self::of_nobody(salt.to_vec(), [0; 64]),
        }
    }

    fn of_nobody(salt: Vec<u8>, keys: [u8; 64]) -> Self {
        Self {
            iterations: ITERATIONS,
            salt,
            stored_key: keys[..32].to_vec(),
            server_key: keys[32..].to_vec(),
        }
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Verifier({} iterations)", self.iterations)
    }
}

/// The users that may connect.
pub trait Users: Send + Sync {
    /// The verifier of `user`'s password; None: there is no such user, it may not log in, or it
    /// has no password.
    fn verifier(&self, user: &str) -> Option<Verifier>;
    /// Whether there is any user; without one everybody who can reach the server may connect.
    fn any(&self) -> bool;
}

/// No users.
pub struct NoUsers;

impl Users for NoUsers {
    fn verifier(&self, _: &str) -> Option<Verifier> {
        None
    }
    fn any(&self) -> bool {
        false
    }
}

/// PostgreSQL's number of iterations.
const ITERATIONS: u32 = 4096;
const PLAIN: &str = "SCRAM-SHA-256";
const BOUND: &str = "SCRAM-SHA-256-PLUS";

/// The server's side of all exchanges.
pub(crate) struct Authenticator {
    random: SystemRandom,
    /// makes the salts of users that do not exist
    nobody: hmac::Key,
    plain: ScramServerAuth,
    /// over TLS: bound to the certificate, so that nobody in between can pass it on
    bound: Option<ScramServerAuth>,
}

impl Authenticator {
    /// An authenticator for a server with the certificate chain `certificate_pem`.
    pub fn new(certificate_pem: Option<&[u8]>) -> Result<Self> {
        let random = SystemRandom::new();
        let nobody = hmac::Key::generate(hmac::HMAC_SHA256, &random).map_err(|_| no_random())?;
        let bound = certificate_pem.and_then(|pem| {
            let mut auth = ScramServerAuth::new();
            // Certificates whose hash is not known can be used without binding.
            auth.configure_certificate(pem).ok().map(|()| auth)
        });
        Ok(Self {
            random,
            nobody,
            plain: ScramServerAuth::new(),
            bound,
        })
    }

    /// A number that nobody can guess.
    pub fn secret(&self) -> Result<i32> {
        let mut bytes = [0; 4];
        self.random.fill(&mut bytes).map_err(|_| no_random())?;
        Ok(i32::from_be_bytes(bytes))
    }

    /// The mechanisms a client may choose from, each ended by NUL.
    pub fn mechanisms(&self, over_tls: bool) -> Vec<u8> {
        let mut names = Vec::new();
        if over_tls && self.bound.is_some() {
            names.extend_from_slice(format!("{BOUND}\0").as_bytes());
        }
        names.extend_from_slice(format!("{PLAIN}\0\0").as_bytes());
        names
    }

    /// Takes the client's first message; the answer and what is to be proved.
    pub fn begin(
        &self,
        user: &str,
        verifier: Option<Verifier>,
        first: &[u8],
        over_tls: bool,
    ) -> Result<(String, Exchange)> {
        let mut fields = Fields::new(first);
        let mechanism = fields.text()?;
        let data = fields.value()?.unwrap_or_default();
        fields.end()?;
        let bound = self.bound.as_ref().filter(|_| over_tls);
        let auth = match (mechanism, bound) {
            (PLAIN, Some(bound)) => {
                // A client that thinks there is no binding here has been lied to.
                if data.starts_with(b"y") {
                    bound
                } else {
                    &self.plain
                }
            }
            (PLAIN, None) => &self.plain,
            (BOUND, Some(bound)) => bound,
            _ => {
                return Err(protocol_violation(
                    "client selected an invalid SASL authentication mechanism",
                ));
            }
        };
        let exists = verifier.is_some();
        let verifier = match verifier {
            Some(verifier) => verifier,
            None => self.nobody(user)?,
        };
        let secret = ScramSecret::Verifier {
            salt: verifier.salt,
            iterations: verifier.iterations as usize,
            stored_key: verifier.stored_key,
            server_key: verifier.server_key,
        };
        let (answer, state) = auth
            .on_client_first_message_with_secret(data, secret)
            .map_err(|e| protocol_violation(format!("malformed SCRAM message: {e}")))?;
        Ok((answer, Exchange { exists, state }))
    }

    fn nobody(&self, user: &str) -> Result<Verifier> {
        let salt = hmac::sign(&self.nobody, user.as_bytes());
        let mut keys = [0; 64];
        self.random.fill(&mut keys).map_err(|_| no_random())?;
        Ok(Verifier::of_nobody(salt.as_ref()[..16].to_vec(), keys))
    }
}

/// An exchange that waits for the client's proof.
pub(crate) struct Exchange {
    exists: bool,
    state: ScramServerAuthWaitingForClientFinal,
}

impl Exchange {
    /// The server's own proof if the client's is right.
    pub fn finish(&self, last: &[u8]) -> Option<String> {
        let proved = self.state.on_client_final_message(last).ok();
        proved.filter(|_| self.exists)
    }
}

fn no_random() -> Error {
    Error::internal("the system has no random numbers to give")
}

/// 28P01, the same for every reason.
pub(crate) fn wrong_password(user: &str) -> Error {
    Error::invalid(
        SqlState("28P01"),
        format!("password authentication failed for user \"{user}\""),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677's example, with the salt and the iterations given there.
    #[test]
    fn verifiers_are_those_of_the_standard() {
        let salt = b"[m\x99h\x9d\x12\x35\x8e\xec\xa0\x4b\x14\x12\x36\xfa\x81";
        let verifier = Verifier::of("pencil", salt, 4096);
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        assert_eq!(
            hex(&verifier.stored_key),
            "586e5df283e6dceb5c3e791d8b8528ec191e664045ce971792e2e6b5bb13e2a6"
        );
    }

    #[test]
    fn nobody_has_the_same_salt_each_time() {
        let auth = Authenticator::new(None).unwrap();
        let first = auth.nobody("ada").unwrap();
        assert_eq!(first.salt, auth.nobody("ada").unwrap().salt);
        assert_ne!(first.salt, auth.nobody("bob").unwrap().salt);
        assert_ne!(first.stored_key, auth.nobody("ada").unwrap().stored_key);
    }
}
