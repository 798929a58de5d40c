/*
 * A second factor for tests: asks as the services of real sites do, and counts every prompt.
 *
 * auth options
 *   code=DIGITS       the accepted passcode
 *   plain             one bare prompt without echo, instead of a menu with echo
 *   delay_ms=N        how long a "push" takes before it is answered (0 to 60000)
 *   deny              a push is refused
 *   tries=N           wrong answers inside one round (1 to 9, default 3)
 *   after=METHOD      has nothing to say until sshd reports that METHOD has succeeded
 *   count=FILE        one line is appended a prompt ("prompt USER") and a login ("login USER")
 *
 * As a session module it writes the "login" line, so FILE tells both how often somebody was asked
 * and how often somebody got in.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <security/pam_appl.h>
#include <security/pam_ext.h>
#include <security/pam_modules.h>

/* The value of `name=value`, or the empty string of a bare `name`; NULL where it is absent. */
static const char *option(int count, const char **words, const char *name)
{
	size_t length = strlen(name);

	for (int i = 0; i < count; i++) {
		if (strncmp(words[i], name, length) != 0)
			continue;
		if (words[i][length] == '=')
			return words[i] + length + 1;
		if (words[i][length] == '\0')
			return words[i] + length;
	}
	return NULL;
}

static long number(const char *text, long least, long most, long otherwise)
{
	if (text == NULL || *text == '\0')
		return otherwise;
	long value = strtol(text, NULL, 10);
	if (value < least)
		return least;
	return value > most ? most : value;
}

/* One short write with O_APPEND: lines of several processes never mix. */
static int record(const char *file, const char *what, const char *user)
{
	char line[256];
	int length, fd, written;

	if (file == NULL)
		return 0;
	length = snprintf(line, sizeof line, "%s %.200s\n", what, user);
	fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	written = (int)write(fd, line, (size_t)length);
	close(fd);
	return written == length ? 0 : -1;
}

static void pause_ms(long ms)
{
	struct timespec left = { ms / 1000, (ms % 1000) * 1000000L };

	while (nanosleep(&left, &left) != 0)
		;
}

static const char *user_of(pam_handle_t *pam)
{
	const char *user = NULL;

	if (pam_get_user(pam, &user, NULL) != PAM_SUCCESS || user == NULL)
		return "?";
	return user;
}

static int ask(pam_handle_t *pam, const char *user, int plain, char **answer)
{
	if (plain)
		return pam_prompt(pam, PAM_PROMPT_ECHO_OFF, answer, "Verification code: ");
	return pam_prompt(pam, PAM_PROMPT_ECHO_ON, answer,
			  "Two-factor login for %s\n\n"
			  "Enter a passcode or choose one of these:\n\n"
			  " 1. Push to XXX-XXX-1234\n"
			  " 2. Phone call to XXX-XXX-1234\n\n"
			  "Passcode or option (1-2): ", user);
}

int pam_sm_authenticate(pam_handle_t *pam, int flags, int count, const char **words)
{
	const char *after = option(count, words, "after");
	const char *code = option(count, words, "code");
	const char *file = option(count, words, "count");
	int plain = option(count, words, "plain") != NULL;
	int deny = option(count, words, "deny") != NULL;
	long tries = number(option(count, words, "tries"), 1, 9, 3);
	long delay_ms = number(option(count, words, "delay_ms"), 0, 60000, 0);
	const char *user = user_of(pam);

	(void)flags;
	if (after != NULL) {
		/* sshd lists here the methods that have succeeded in this login. */
		const char *done = pam_getenv(pam, "SSH_AUTH_INFO_0");
		if (done == NULL || strstr(done, after) == NULL)
			return PAM_IGNORE;
	}
	for (long i = 0; i < tries; i++) {
		char *answer = NULL;
		int push, right;

		/* Counted before it is asked: a prompt that nobody answers was one too. A count
		 * that cannot be kept would let a test pass wrongly, so it ends the login. */
		if (record(file, "prompt", user) != 0)
			return PAM_SYSTEM_ERR;
		if (ask(pam, user, plain, &answer) != PAM_SUCCESS)
			return PAM_CONV_ERR;
		if (answer == NULL)
			return PAM_AUTH_ERR;
		push = !plain && (strcmp(answer, "1") == 0 || strcmp(answer, "push") == 0);
		right = code != NULL && strcmp(answer, code) == 0;
		free(answer);
		if (push) {
			pam_info(pam, "A login request was pushed to your device.");
			pause_ms(delay_ms);
			if (!deny)
				return PAM_SUCCESS;
			pam_error(pam, "The login request was denied.");
		} else if (right) {
			pam_info(pam, "The passcode is right.");
			return PAM_SUCCESS;
		} else {
			pam_error(pam, "Incorrect passcode. Please try again.");
		}
	}
	return PAM_AUTH_ERR;
}

int pam_sm_setcred(pam_handle_t *pam, int flags, int count, const char **words)
{
	(void)pam;
	(void)flags;
	(void)count;
	(void)words;
	return PAM_SUCCESS;
}

int pam_sm_open_session(pam_handle_t *pam, int flags, int count, const char **words)
{
	(void)flags;
	return record(option(count, words, "count"), "login", user_of(pam)) == 0 ? PAM_SUCCESS
										  : PAM_SESSION_ERR;
}

int pam_sm_close_session(pam_handle_t *pam, int flags, int count, const char **words)
{
	(void)pam;
	(void)flags;
	(void)count;
	(void)words;
	return PAM_SUCCESS;
}
