WRONG = "raed_it"
