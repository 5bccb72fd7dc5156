//! The binding of Intel's multi-buffer library. `ipsec_mb.c` has the functions that ring calls.

#![expect(unsafe_code, reason = "the library is written in C and assembly")]

use super::Unavailable;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::ffi::c_int;

/// Length from which on the library processes a data message, in bytes.
///
/// In a loop, the library is faster than ring for any length: by 0.03 us for 96 B, by 0.07 us for
/// 512 B and by 0.2 us for 1,340 B. But its code is longer than ring's, and not in the caches of the
/// CPU for the first message after a pause, which takes 0.3 to 1.4 us longer. So ring processes
/// short messages, such as probes, requests and acknowledgements.
pub(super) const LONG_MIN: usize = 512;

/// The messages that the library processes; ring processes the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Messages {
    None = 0,
    /// Messages without additional data from [`LONG_MIN`] on.
    Long = 1,
    /// All messages, for tests of the library.
    All = 2,
}

unsafe extern "C" {
    /// # Safety
    ///
    /// If the library processes messages, the CPU must have the instructions of [`is_supported`].
    fn liqo_cipher_set(messages: c_int, long_min: usize);

    safe fn liqo_cipher_count() -> u64;
}

/// Checks the library, and lets it process long messages.
///
/// # Errors
///
/// Returns the reason if the library cannot be used. ring then processes all messages.
pub(super) fn enable() -> Result<(), Unavailable> {
    let by_ring = check_messages();
    set(Messages::All)?;
    let before = count();
    let by_library = check_messages();
    let calls = count() - before;

    match compare(&by_ring, &by_library, calls) {
        Ok(()) => set(Messages::Long),
        Err(reason) => {
            disable();
            Err(reason)
        }
    }
}

/// Lets ring process all messages.
pub(super) fn disable() {
    // SAFETY: the library processes no message.
    unsafe { liqo_cipher_set(Messages::None as c_int, LONG_MIN) }
}

/// Sets the messages that the library processes.
///
/// # Errors
///
/// Returns [`Unavailable::Processor`] if the CPU cannot run the library.
pub(super) fn set(messages: Messages) -> Result<(), Unavailable> {
    if !is_supported() {
        return Err(Unavailable::Processor);
    }
    // SAFETY: the CPU has the instructions.
    unsafe { liqo_cipher_set(messages as c_int, LONG_MIN) }

    Ok(())
}

/// Returns the number of messages that the library has processed in this thread.
pub(super) fn count() -> u64 {
    liqo_cipher_count()
}

/// Returns whether the CPU has the instructions of the library, and the kernel enables them.
///
/// The library also has code for AVX-512 without IFMA. CPUs without IFMA, from Skylake to Cooper
/// Lake, reduce the clock of a core that multiplies in 512-bit registers.
fn is_supported() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512cd")
        && std::arch::is_x86_feature_detected!("avx512dq")
        && std::arch::is_x86_feature_detected!("avx512vl")
        && std::arch::is_x86_feature_detected!("avx512ifma")
}

/// Compares the test messages of both implementations. The library has processed `calls` messages.
fn compare(
    by_ring: &[CheckMessage],
    by_library: &[CheckMessage],
    calls: u64,
) -> Result<(), Unavailable> {
    // Each message was sealed and opened.
    let expected = 2 * CHECKED_LENGTHS.len();
    if u64::try_from(expected) != Ok(calls) {
        return Err(Unavailable::NotCalled);
    }
    let is_valid = |message: &CheckMessage| message.opened.as_deref() == Some(&message.plain[..]);
    if by_ring != by_library || !by_library.iter().all(is_valid) {
        return Err(Unavailable::Differs);
    }

    Ok(())
}

/// Lengths of the test messages: with and without an incomplete block, within and beyond the 960
/// bytes whose key stream the library generates together with the key of Poly1305.
const CHECKED_LENGTHS: [usize; 6] = [0, 96, 512, 960, 1_424, 8_927];

/// A message that one of the implementations has encrypted and decrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CheckMessage {
    plain: Vec<u8>,
    /// Ciphertext and tag.
    sealed: Vec<u8>,
    /// The decrypted message; `None` if the tag is refused.
    opened: Option<Vec<u8>>,
}

/// Encrypts and decrypts the test messages with the implementation that is set.
fn check_messages() -> Vec<CheckMessage> {
    let key = UnboundKey::new(&CHACHA20_POLY1305, &[0x6c; 32]).expect("the key has 32 bytes");
    let key = LessSafeKey::new(key);

    CHECKED_LENGTHS
        .iter()
        .map(|&length| check_message(&key, length))
        .collect()
}

fn check_message(key: &LessSafeKey, length: usize) -> CheckMessage {
    let nonce = || Nonce::assume_unique_for_key([0x71; 12]);
    let plain: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
    let mut sealed = plain.clone();
    key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut sealed)
        .expect("the message is shorter than 256 GiB");
    let mut buffer = sealed.clone();
    let opened = key.open_in_place(nonce(), Aad::empty(), &mut buffer);
    let opened = opened.ok().map(|plain| plain.to_vec());

    CheckMessage {
        plain,
        sealed,
        opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_messages_of_both_implementations_pass() {
        let messages = check_messages();

        assert_eq!(compare(&messages, &messages, CALLS), Ok(()));
    }

    #[test]
    fn a_differing_ciphertext_is_refused() {
        let messages = check_messages();
        let mut other = messages.clone();
        other[4].sealed[7] ^= 1;

        assert_eq!(compare(&messages, &other, CALLS), Err(Unavailable::Differs));
    }

    #[test]
    fn a_message_that_is_not_opened_is_refused() {
        let mut messages = check_messages();
        messages[4].opened = None;

        assert_eq!(
            compare(&messages, &messages, CALLS),
            Err(Unavailable::Differs)
        );
    }

    #[test]
    fn a_library_that_ring_does_not_call_is_refused() {
        let messages = check_messages();

        assert_eq!(
            compare(&messages, &messages, CALLS - 1),
            Err(Unavailable::NotCalled)
        );
    }

    const CALLS: u64 = 2 * CHECKED_LENGTHS.len() as u64;
}
