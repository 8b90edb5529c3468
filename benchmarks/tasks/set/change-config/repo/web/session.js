// Warns before the session ends.
const WARN_MINUTES = 5;

export function warnBeforeEnd(timeoutMinutes, warn) {
  const wait = (timeoutMinutes - WARN_MINUTES) * 60 * 1000;
  return setTimeout(() => warn(`You will be logged out in ${WARN_MINUTES} minutes.`), wait);
}
