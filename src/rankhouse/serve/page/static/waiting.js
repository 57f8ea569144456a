// A service that is not ready yet: what it says is brought up to date, and its page takes the place of this one.
// Without this file the page loads itself again.
const look = async () => {
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.status !== 503 || answer.redirected) return location.reload();
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector(".narrow").replaceWith(page.querySelector(".narrow"));
  } catch {
    document.querySelector(".narrow p:last-child").textContent = "The service does not answer.";
  }
  setTimeout(look, 1000);
};
setTimeout(look, 1000);
