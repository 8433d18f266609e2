"""Recurrent operators: LSTM, GRU and RNN."""
