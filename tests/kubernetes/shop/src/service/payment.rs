//! Payments, of which only the number of the card is checked.

use crate::message::{Charge, Text};
use crate::random;
use crate::rpc::Calls;
use std::sync::Arc;
use tonic::Status;

/// Accepts a payment with a valid card. Returns the identifier of the transaction.
pub(super) async fn charge(_: Arc<Calls>, charge: Charge) -> Result<Text, Status> {
    if charge.amount.is_none_or(|amount| amount.cents <= 0) {
        return Err(Status::invalid_argument("the amount is not positive"));
    }
    if !is_card(&charge.card) {
        return Err(Status::invalid_argument(
            "the number of the credit card is invalid: check its digits",
        ));
    }

    Ok(Text { text: random::id() })
}

/// Checks length and check digit of a card's number (ISO/IEC 7812), which may have separators.
fn is_card(number: &str) -> bool {
    let digits = number.chars().filter(|it| ![' ', '-'].contains(it));
    let Some(digits) = digits.map(|it| it.to_digit(10)).collect::<Option<Vec<_>>>() else {
        return false;
    };
    let weighted = digits.iter().rev().enumerate().map(|(index, digit)| {
        let doubled = digit * 2;
        match index % 2 {
            0 => *digit,
            _ => doubled / 10 + doubled % 10,
        }
    });

    (12..=19).contains(&digits.len()) && weighted.sum::<u32>() % 10 == 0
}

#[cfg(test)]
mod tests {
    use super::is_card;

    #[test]
    fn the_check_digit_must_match() {
        assert!(is_card("4111 1111-1111 1111"));
        for invalid in ["4111111111111112", "", "0", "41111111x1111111", "１２３"] {
            assert!(!is_card(invalid), "{invalid}");
        }
    }
}
