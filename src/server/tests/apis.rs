//! What each API answers.
