//! Published test vectors. The library processes all messages, if this machine can use it.

use super::{counted, has_library, lock, open, process_all, seal};
use serde::Deserialize;

/// RFC 8439, section 2.8.2.
#[test]
fn the_vector_of_the_rfc() {
    let _setting = lock();
    process_all();
    let key = bytes("808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f");
    let nonce = bytes("070000004041424344454647");
    let aad = bytes("50515253c0c1c2c3c4c5c6c7");
    let plain = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
    let (key, nonce) = (array(&key), array(&nonce));

    let (sealed, calls) = counted(|| seal(&key, &nonce, &aad, plain));

    assert_eq!(
        sealed,
        bytes(concat!(
            "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6",
            "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36",
            "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc",
            "3ff4def08e4b7a9de576d26586cec64b6116",
            "1ae10b594f09e26a7e902ecbd0600691",
        ))
    );
    assert_eq!(
        open(&key, &nonce, &aad, &sealed).as_deref(),
        Some(&plain[..])
    );
    assert_eq!(calls, u64::from(has_library()));
}

/// `testvectors/chacha20_poly1305_test.json` of Project Wycheproof
/// (<https://github.com/C2SP/wycheproof>, Apache-2.0).
#[test]
fn the_vectors_of_wycheproof() {
    let _setting = lock();
    process_all();
    let file: File = serde_json::from_str(include_str!("wycheproof.json")).unwrap();
    let groups = file.groups.iter().filter(|group| group.nonce_bits == 96);
    let vectors: Vec<_> = groups.flat_map(|group| &group.vectors).collect();

    let (valid, calls) = counted(|| vectors.iter().filter(|vector| vector.check()).count());

    assert_eq!((vectors.len(), valid), (316, 256));
    // Each vector is opened, and the plaintext of a valid one is sealed.
    let expected = u64::try_from(vectors.len() + valid).unwrap();
    assert_eq!(calls, u64::from(has_library()) * expected);
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "testGroups")]
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(rename = "ivSize")]
    nonce_bits: usize,
    #[serde(rename = "tests")]
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    #[serde(rename = "tcId")]
    id: u32,
    key: String,
    iv: String,
    aad: String,
    msg: String,
    ct: String,
    tag: String,
    result: String,
}

impl Vector {
    /// Returns whether the vector is a valid message.
    ///
    /// # Panics
    ///
    /// Panics if the cipher does not accept or refuse the message as the vector requires.
    fn check(&self) -> bool {
        let (key, nonce, aad) = (bytes(&self.key), bytes(&self.iv), bytes(&self.aad));
        let (key, nonce) = (array(&key), array(&nonce));
        let sealed = bytes(&[&self.ct[..], &self.tag].concat());
        let plain = bytes(&self.msg);
        let is_valid = self.result == "valid";

        let opened = open(&key, &nonce, &aad, &sealed);

        assert_eq!(opened, is_valid.then(|| plain.clone()), "{}", self.id);
        if is_valid {
            assert_eq!(seal(&key, &nonce, &aad, &plain), sealed, "{}", self.id);
        }
        is_valid
    }
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);

    digits
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap()
}
