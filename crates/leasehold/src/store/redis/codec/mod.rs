//! Translates steps to arguments of scripts, and answers of scripts to replies.
//!
//! | module | what it is for |
//! |---|---|
//! | [`words`] | the keys and words that the scripts and this client share |
//! | [`form`] | in which form a step is sent, and with which others |
//! | [`encode`] | writes steps as the keys and arguments of their script |
//! | [`reply`] | reads the answer of a script |

pub(super) mod encode;
pub(super) mod form;
pub(super) mod reply;
pub(super) mod words;
