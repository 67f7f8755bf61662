"""Tweets, for the account whose four `TW_` keys are set. `tweet` has the command, `account` sends by tweepy."""
