//! The private key of a cluster: Ed25519, or RSA where a peer's tools know nothing else.

use crate::pem;
use crate::public_key::{Algorithm, PublicKey};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use rsa::pkcs8::{EncodePrivateKey as _, PrivateKeyInfoRef};
use x509_cert::der::Encode as _;
use x509_cert::der::asn1::{BitString, OctetString, OctetStringRef};
use x509_cert::der::referenced::OwnedToRef as _;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

/// Label of a private key in PKCS #8 (RFC 5958).
const LABEL: &str = "PRIVATE KEY";

/// Size in bits of the modulus of a generated RSA key, as upstream's.
const RSA_BITS: usize = 2048;

/// Type of a key to generate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyType {
    /// Ed25519 (RFC 8032).
    #[default]
    Ed25519,
    /// RSA of 2,048 bits, for peers whose tools do not know Ed25519.
    Rsa,
}

/// The private key of a cluster. Not printed.
pub struct ClusterKey {
    signer: Signer,
    pem: String,
    public: PublicKey,
}

enum Signer {
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
}

/// A private key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It is not PKCS #8 in PEM.
    #[error("the private key is not PKCS #8 in a PEM block `PRIVATE KEY`: {0}")]
    Syntax(String),
    /// Its type is not supported.
    #[error(
        "the private key is of a type that is not supported: use Ed25519, RSA or ECDSA (P-256)"
    )]
    Type,
    /// It is invalid.
    #[error("the private key is invalid: {0}")]
    Invalid(String),
    /// No signature was made.
    #[error("failed to sign with the private key")]
    Sign,
}

impl ClusterKey {
    /// Generates a key from random bytes.
    ///
    /// # Errors
    ///
    /// Returns [`KeyError::Invalid`] if no RSA key was found.
    pub fn generate(key_type: KeyType, random: [u8; 32]) -> Result<Self, KeyError> {
        let invalid = |error: &dyn std::fmt::Display| KeyError::Invalid(error.to_string());
        let der = match key_type {
            KeyType::Ed25519 => {
                // CurvePrivateKey (RFC 8410, section 7): an OCTET STRING with the seed.
                let seed = OctetString::new(random).and_then(|seed| seed.to_der());
                let seed = seed
                    .and_then(OctetString::new)
                    .map_err(|error| invalid(&error))?;
                let seed = OctetStringRef::new(seed.as_bytes()).map_err(|error| invalid(&error))?;
                let identifier = Algorithm::Ed25519.key_identifier();
                let info = PrivateKeyInfoRef::new(identifier.owned_to_ref(), seed);
                info.to_der().map_err(|error| invalid(&error))?
            }
            KeyType::Rsa => {
                let key = rsa::PrivateKey::new(&mut StdRng::from_seed(random), RSA_BITS);
                let key = key.map_err(|error| invalid(&error))?;
                let der = key.to_pkcs8_der().map_err(|error| invalid(&error))?;
                der.as_bytes().to_vec()
            }
        };

        Self::from_pem(pem::encode(LABEL, &der).as_bytes())
    }

    /// Parses a key of the Secret `authentication-keys`.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyError> {
        let der = pem::decode(LABEL, text).map_err(KeyError::Syntax)?;
        let info = PrivateKeyInfoRef::try_from(der.as_slice());
        let info = info.map_err(|error| KeyError::Syntax(error.to_string()))?;
        let algorithm = Algorithm::of(&info.algorithm).ok_or(KeyError::Type)?;
        let signer = Signer::new(algorithm, &der)?;
        let public = signer.public_key(algorithm)?;
        let pem = String::from_utf8(text.to_vec());

        Ok(Self {
            signer,
            pem: pem.map_err(|error| KeyError::Syntax(error.to_string()))?,
            public,
        })
    }

    /// Returns the key as PEM text. It is secret.
    pub fn to_pem(&self) -> &str {
        &self.pem
    }

    /// Returns the public key.
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// Signs a message; see [`PublicKey::verify`] for the schemes. Signatures of ECDSA are random, all others
    /// depend on key and message only.
    ///
    /// # Errors
    ///
    /// Returns [`KeyError::Sign`] if the library fails.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let random = SystemRandom::new();
        match &self.signer {
            Signer::Ed25519(key) => Ok(key.sign(message).as_ref().to_vec()),
            Signer::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                let signed = key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature);
                signed.map_err(|_| KeyError::Sign)?;

                Ok(signature)
            }
            Signer::Ecdsa(key) => {
                let signed = key.sign(&random, message).map_err(|_| KeyError::Sign)?;
                Ok(signed.as_ref().to_vec())
            }
        }
    }
}

impl Signer {
    fn new(algorithm: Algorithm, der: &[u8]) -> Result<Self, KeyError> {
        let invalid = |error: ring::error::KeyRejected| KeyError::Invalid(error.to_string());
        match algorithm {
            Algorithm::Ed25519 => {
                let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der);
                key.map(Self::Ed25519).map_err(invalid)
            }
            Algorithm::Rsa => RsaKeyPair::from_pkcs8(der).map(Self::Rsa).map_err(invalid),
            Algorithm::EcdsaP256 => {
                let curve = &ECDSA_P256_SHA256_ASN1_SIGNING;
                let key = EcdsaKeyPair::from_pkcs8(curve, der, &SystemRandom::new());
                key.map(Self::Ecdsa).map_err(invalid)
            }
            // The library signs with SHA-384 only, and nonces are signed with SHA-256.
            Algorithm::EcdsaP384 => Err(KeyError::Type),
        }
    }

    fn public_key(&self, algorithm: Algorithm) -> Result<PublicKey, KeyError> {
        let bytes = match self {
            Self::Ed25519(key) => key.public_key().as_ref(),
            Self::Rsa(key) => key.public_key().as_ref(),
            Self::Ecdsa(key) => key.public_key().as_ref(),
        };
        let invalid = |error: x509_cert::der::Error| KeyError::Invalid(error.to_string());
        let info = SubjectPublicKeyInfoOwned {
            algorithm: algorithm.key_identifier(),
            subject_public_key: BitString::from_bytes(bytes).map_err(invalid)?,
        };
        let der = info.to_der().map_err(invalid)?;

        PublicKey::from_der(&der).map_err(|error| KeyError::Invalid(error.to_string()))
    }
}

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterKey")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}
