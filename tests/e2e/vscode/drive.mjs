// drive.mjs MODULES PORT FOLDER FILE SHOTS: drives VS Code in headless Chromium. Reads one command a line on stdin and
// answers each with one line of JSON on stdout:
//   status                the FlagOS item of the status bar: {"text": ..., "right": distance to the window's right edge, px}
//   hover LINE COLUMN     text of the hover at that place (1-based)
//   type LINE TEXT        inserts a new line with TEXT above LINE
//   tree                  labels of the FlagOS views
//   shot NAME             SHOTS/NAME.png
//   quit
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import path from 'node:path';

const [modules, port, folder, file, shots] = process.argv.slice(2);
const { chromium } = createRequire(path.join(modules, 'package.json'))('playwright-core');

const browser = await chromium.launch({
  executablePath: process.env.FLAGOS_CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
const page = await browser.newPage({ viewport: { width: 1500, height: 900 } });
await page.goto(`http://127.0.0.1:${port}/?folder=${encodeURIComponent(folder)}`);
await page.waitForSelector('.monaco-workbench', { timeout: 120000 });
await page.getByText(path.basename(file), { exact: true }).first().dblclick({ timeout: 120000 });
await page.waitForSelector('.view-line', { timeout: 120000 });

const item = () => page.locator('.statusbar-item.right').filter({ hasText: /npu|FlagOS|no device|idle|ended/ }).first();

async function goto(line) {
  await page.keyboard.press('Control+g');
  await page.waitForSelector('.quick-input-widget input');
  await page.keyboard.type(String(line));
  await page.keyboard.press('Enter');
  await page.waitForTimeout(300);
}

const commands = {
  async status() {
    const text = (await item().innerText({ timeout: 60000 })).trim().replace(/\s+/g, ' ');
    const box = await item().boundingBox();
    return { text, right: 1500 - (box.x + box.width), bottom: 900 - (box.y + box.height) };
  },
  async hover(line, column) {
    await goto(`${line}:${column}`);
    await page.keyboard.press('Control+k');
    await page.keyboard.press('Control+i');
    const box = page.locator('.monaco-editor .monaco-hover:not(.hidden) .rendered-markdown');
    await box.first().waitFor({ timeout: 30000 });
    await page.waitForTimeout(700);
    return { text: (await box.allInnerTexts()).join('\n') };
  },
  async type(line, ...text) {
    await goto(line);
    await page.keyboard.press('Home');
    await page.keyboard.type(text.join(' ') + '\n');
    return { ok: true };
  },
  async tree() {
    await page.locator('.activitybar .action-label[aria-label*="FlagOS"]').first().click();
    await page.waitForTimeout(1500);
    return { labels: await page.locator('.pane-body .monaco-list-row').allInnerTexts() };
  },
  async shot(name) {
    await page.screenshot({ path: path.join(shots, `${name}.png`) });
    return { path: path.join(shots, `${name}.png`) };
  },
};

process.stdout.write(JSON.stringify({ ready: true }) + '\n');
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...args] = line.trim().split(' ');
  if (name === 'quit') break;
  let answer;
  try {
    answer = commands[name] ? await commands[name](...args) : { error: `no command ${name}` };
  } catch (error) {
    answer = { error: String(error).split('\n')[0] };
  }
  process.stdout.write(JSON.stringify(answer) + '\n');
}
await browser.close();
