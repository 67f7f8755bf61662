"""Sends and reads mail, with the account that the environment names."""

import email
import imaplib
import os
import smtplib
from email.message import EmailMessage

from auto_gpt_plugin_template import AutoGPTPluginTemplate
from autogpt.commands.file_operations import read_file
from autogpt.logs import logger


class Mailer(AutoGPTPluginTemplate):
    def __init__(self):
        super().__init__()
        self.address, self.password = os.environ["EMAIL_ADDRESS"], os.getenv("EMAIL_PASSWORD")

    def can_handle_post_prompt(self):
        return True

    def post_prompt(self, prompt):
        send = {"to": "<to>", "subject": "<subject>", "filename": "<file with the text>"}
        prompt.add_command("Send Email", "send_email", send, self.send)
        prompt.add_command("Read Emails", "read_emails", {}, self.read)
        return prompt

    def send(self, to: str, subject: str, filename: str) -> str:
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self.address, to, subject
        message.set_content(read_file(filename))
        with smtplib.SMTP(os.environ["EMAIL_SMTP_HOST"], int(os.environ["EMAIL_SMTP_PORT"])) as server:
            server.login(self.address, self.password)
            server.send_message(message)
        logger.info(f"sent to {to}")
        return f"Email was sent to {to}!"

    def read(self) -> list:
        connection = imaplib.IMAP4(os.environ["EMAIL_SMTP_HOST"], int(os.environ["EMAIL_IMAP_PORT"]))
        connection.login(self.address, self.password)
        connection.select("INBOX")
        _, (found,) = connection.search(None, "ALL")
        messages = []
        for number in found.split():
            _, data = connection.fetch(number.decode(), "(RFC822)")
            message = email.message_from_bytes(data[0][1])
            messages.append({"From": message["From"], "Subject": message["Subject"], "Body": message.get_payload()})
        connection.logout()
        return messages
